package recipes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

func TestALocksHooksRunAfterThoseOfItsClient(t *testing.T) {
	inWorld(t, func(w *world) {
		var ran []string
		hooks := func(name string) recipes.Option {
			return recipes.WithTrace(&recipes.Trace{
				Granted:  func(context.Context, recipes.GrantedInfo) { ran = append(ran, name+" granted") },
				Released: func(context.Context, recipes.ReleasedInfo) { ran = append(ran, name+" released") },
			})
		}
		c := w.client("a", hooks("client"))
		w.unlock(w.won(c.lock(bg, hooks("lock"), recipes.WithTrace(nil))))
		w.unlock(w.won(c.lock(bg)))
		assert.Equal(w, []string{
			"client granted", "lock granted", "client released", "lock released",
			"client granted", "client released",
		}, ran)
	})
}

type callerKey struct{}

func from(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// life records each event in seen, with the caller's name from the context.
func life(seen *[]string) *recipes.Trace {
	var mu sync.Mutex
	note := func(ctx context.Context, told ...any) {
		mu.Lock()
		defer mu.Unlock()
		caller, _ := ctx.Value(callerKey{}).(string)
		*seen = append(*seen, strings.TrimSpace(fmt.Sprintln(told...))+" <- "+caller)
	}
	return &recipes.Trace{
		Connected:    func(ctx context.Context, _ recipes.ConnectedInfo) { note(ctx, "connected") },
		SessionEnded: func(ctx context.Context, _ recipes.SessionEndedInfo) { note(ctx, "ended") },
		Started:      func(ctx context.Context, i recipes.StartedInfo) { note(ctx, i.Recipe, "started", i.Mode, i.Try) },
		Queued:       func(ctx context.Context, i recipes.QueuedInfo) { note(ctx, i.Recipe, "queued", i.Place.Name) },
		Waiting:      func(ctx context.Context, i recipes.WaitingInfo) { note(ctx, i.Recipe, "waiting", i) },
		Granted: func(ctx context.Context, i recipes.GrantedInfo) {
			note(ctx, i.Recipe, "granted", i.Mode, i.Try, i.Waited)
		},
		Failed: func(ctx context.Context, i recipes.FailedInfo) {
			note(ctx, i.Recipe, "failed", i.Node, i.Mode, i.Try, i.Waited)
		},
		Retrying:   func(ctx context.Context, i recipes.RetryingInfo) { note(ctx, i.Recipe, "retrying") },
		Downgraded: func(ctx context.Context, i recipes.DowngradedInfo) { note(ctx, i.Recipe, "downgraded", i.Node) },
		Released:   func(ctx context.Context, i recipes.ReleasedInfo) { note(ctx, i.Recipe, "released", i.Mode, i.Held) },
		Lost:       func(ctx context.Context, i recipes.LostInfo) { note(ctx, i.Recipe, "lost", i.Mode) },
		Reaped:     func(ctx context.Context, i recipes.ReapedInfo) { note(ctx, i.Recipe, "reaped") },
	}
}

func TestHooksSeeTheLifeOfALock(t *testing.T) {
	inWorld(t, func(w *world) {
		var seen []string
		c := &client{recipes.NewClient(w.store, recipes.WithTrace(life(&seen)), recipes.WithHostname("a")), nil}
		m := c.RWMutex("q", recipes.WithTimeout(time.Minute))
		held := w.won(w.client("h").lock(bg))
		waiting := going(func() (*recipes.Lock, error) { return m.Lock(from(bg, "lock")) })
		time.Sleep(2 * time.Second)
		w.unlock(held)
		l := w.won(waiting)
		time.Sleep(3 * time.Second)
		require.NoError(w, l.Downgrade(from(bg, "downgrade")))
		require.NoError(w, l.Downgrade(from(bg, "again")), "which does nothing")
		_, err := m.Lock(l.Context(from(bg, "upgrade")))
		require.ErrorIs(w, err, recipes.ErrUpgrade)
		w.unlock(l)
		other := w.won(w.client("o").rlock(bg))
		_, err = m.TryLock(from(bg, "try"))
		require.ErrorIs(w, err, recipes.ErrLocked)
		_, err = c.RWMutex("q", recipes.WithTimeout(time.Second)).Lock(from(bg, "late"))
		require.ErrorIs(w, err, recipes.ErrTimeout)
		w.unlock(w.granted(m.TryRLock(from(bg, "reader"))), other)
		l = w.granted(m.Lock(from(bg, "last")))
		require.NoError(w, c.Close())
		require.ErrorIs(w, l.Unlock(), recipes.ErrClosed)
		slices.Sort(seen[len(seen)-2:]) // these two come in either order
		assert.Equal(w, []string{
			"lock started exclusive false <- lock",
			"connected <- lock",
			"lock queued a-W-0000000001 <- lock",
			"lock waiting q: a-W-0000000001 waits behind h-W-0000000000, 2nd in the queue <- lock",
			"lock granted exclusive false 2s <- lock",
			"lock downgraded a-R-0000000001 <- downgrade",
			"lock started exclusive false <- upgrade",
			"lock failed  exclusive false 0s <- upgrade",
			"lock released shared 3s <- lock",
			"lock started exclusive true <- try",
			"lock failed  exclusive true 0s <- try",
			"lock started exclusive false <- late",
			"lock queued a-W-0000000003 <- late",
			"lock waiting q: a-W-0000000003 waits behind o-R-0000000002, 2nd in the queue <- late",
			"lock failed a-W-0000000003 exclusive false 1s <- late",
			"lock started shared true <- reader",
			"lock queued a-R-0000000004 <- reader",
			"lock granted shared true 0s <- reader",
			"lock released shared 0s <- reader",
			"lock started exclusive false <- last",
			"lock queued a-W-0000000005 <- last",
			"lock granted exclusive false 0s <- last",
			"ended <- ",
			"lock lost exclusive <- last",
		}, seen)
	})
}

func TestConnectingReportsTheSession(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		var seen []recipes.ConnectedInfo
		c := w.client("a", logTo(&log), recipes.WithTrace(&recipes.Trace{
			Connected: func(_ context.Context, i recipes.ConnectedInfo) { seen = append(seen, i) },
		}))
		l := w.won(c.lock(bg))
		require.Len(w, seen, 1)
		s := seen[0].Session
		assert.Equal(w, "memory", s.Server)
		assert.Equal(w, 10*time.Second, s.Timeout)
		queue, err := c.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		assert.Equal(w, queue[0].Owner, s.ID)
		assert.Contains(w, log.String(), `msg="dlock: session began" session=`+s.ID+` server=memory timeout=10s`)
		w.unlock(l)
	})
}

// era is a session that reports a name as the generation of its store's data.
type era struct {
	driver.Session
	driver.Unsupported
	name string
}

func (s era) Describe() driver.SessionInfo { return driver.SessionInfo{Generation: s.name} }

func TestConnectedNamesTheGenerationThatHasEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		var before []string
		var name string
		var last driver.Session
		c := w.connecting(wrapped(w.store, func(s driver.Session) driver.Session {
			last = s
			return era{Session: s, name: name}
		}), logTo(&log), recipes.WithTrace(&recipes.Trace{
			Connected: func(_ context.Context, i recipes.ConnectedInfo) { before = append(before, i.Before) },
		}))
		for _, name = range []string{"a", "a", "b", "b", "c"} {
			require.NoError(w, c.Ping(bg))
			w.store.Faults().Expire(last)
			synctest.Wait()
		}
		assert.Equal(w, []string{"", "", "a", "", "b"}, before)
		assert.Contains(w, log.String(), " generation=c before=b")
	})
}

type endings struct{ granted, released, lost int }

func (e *endings) trace() *recipes.Trace {
	return &recipes.Trace{
		Granted:  func(context.Context, recipes.GrantedInfo) { e.granted++ },
		Released: func(context.Context, recipes.ReleasedInfo) { e.released++ },
		Lost: func(context.Context, recipes.LostInfo) {
			if e.granted == 0 {
				panic("Lost before Granted has returned")
			}
			e.lost++
		},
	}
}

// A loss while a Granted hook runs must be reported even if that hook panics.
func TestEachTraceSeesTheEndOfACallWhoseGrantedHookIsSlow(t *testing.T) {
	for _, loss := range []bool{false, true} {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("loss %v, panics %v", loss, panics), func(t *testing.T) {
				inWorld(t, func(w *world) {
					var c *client
					var seen [2]endings
					c = w.client("a", recipes.WithTrace(seen[0].trace()),
						recipes.WithTrace(&recipes.Trace{Granted: func(context.Context, recipes.GrantedInfo) {
							if loss {
								w.store.Faults().Expire(c.session())
								synctest.Wait()
							}
							if panics {
								panic("hook")
							}
						}}),
						recipes.WithTrace(seen[1].trace()))
					lock := func() {
						l := w.granted(c.RWMutex("q").Lock(bg))
						assert.Equal(w, loss, errors.Is(l.Unlock(), recipes.ErrLost))
					}
					if panics {
						require.PanicsWithValue(w, "hook", lock)
					} else {
						lock()
					}
					synctest.Wait()
					want := endings{granted: 1, released: 1}
					if loss {
						want = endings{granted: 1, lost: 1}
					}
					assert.Equal(w, [2]endings{want, want}, seen)
					w.unlock(w.won(w.client("b").lock(bg)))
				})
			})
		}
	}
}

func TestHeartbeatTellsHowMuchOfTheLeaseWasLeft(t *testing.T) {
	const timeout = 8 * time.Second
	inWorldOf(t, func() *memdriver.Store { return memdriver.New(memdriver.WithSessionTimeout(timeout)) }, func(w *world) {
		var mu sync.Mutex
		var seen []recipes.HeartbeatInfo
		taken := func() []recipes.HeartbeatInfo {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer func() { seen = nil }()
			return seen
		}
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Heartbeat: func(_ context.Context, i recipes.HeartbeatInfo) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, i)
		}}))
		taken()

		time.Sleep(timeout / 8)
		term := timeout * 3 / 4
		id := driver.Inspect(c.session()).Describe().ID
		assert.Equal(w, []recipes.HeartbeatInfo{{SessionID: id, Left: term - timeout/8, Term: term}}, taken())

		w.store.Faults().DelayReplies(c.session(), timeout/5)
		time.Sleep(timeout / 2)
		least := term
		for _, i := range taken() {
			least = min(least, i.Left)
		}
		assert.Equal(w, term-timeout/8-timeout/5, least)

		require.NoError(w, c.Close())
		taken()
		time.Sleep(timeout)
		assert.Empty(w, taken(), "heartbeats after Close")
	})
}

// A hook that hangs must delay neither the heartbeats nor the locks.
func TestASlowHeartbeatHookGetsTheSmallestLeft(t *testing.T) {
	const timeout = 8 * time.Second
	inWorldOf(t, func() *memdriver.Store { return memdriver.New(memdriver.WithSessionTimeout(timeout)) }, func(w *world) {
		entered, goOn := make(chan recipes.HeartbeatInfo), make(chan struct{})
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Heartbeat: func(_ context.Context, i recipes.HeartbeatInfo) {
			entered <- i
			<-goOn
		}}))
		first := <-entered
		w.store.Faults().DelayReplies(c.session(), timeout/5)
		time.Sleep(timeout)
		w.store.Faults().DelayReplies(c.session(), 0)
		time.Sleep(2 * timeout)
		l := w.won(c.lock(bg))
		require.NoError(w, l.Err())
		w.unlock(l)
		goOn <- struct{}{}
		second := <-entered
		goOn <- struct{}{}
		assert.Less(w, second.Left, first.Left-timeout/8)
		require.NoError(w, c.Close())
	})
}

func TestAHookThatPanicsInUnlockDoesNotStopTheNextWaiter(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		trace := recipes.WithTrace(&recipes.Trace{Released: func(context.Context, recipes.ReleasedInfo) { panic("x") }})
		traced := w.won(c.rlock(bg, trace))
		waiting := c.lock(bg)
		w.waits(waiting)
		assert.PanicsWithValue(w, "x", func() { _ = traced.Unlock() })
		w.unlock(w.won(waiting))
	})
	inWorld(t, func(w *world) {
		c := w.client("a")
		trace := recipes.WithTrace(&recipes.Trace{Downgraded: func(context.Context, recipes.DowngradedInfo) { panic("x") }})
		l := w.won(c.lock(bg, trace))
		inner := w.won(c.rlock(l.Context(bg)))
		waiting := c.rlock(bg)
		assert.PanicsWithValue(w, "x", func() { _ = l.Unlock() })
		w.unlock(w.won(waiting), inner)
	})
}

func TestASlowHookDoesNotDelayTheLossOfOtherLocks(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a", recipes.WithTrace(&recipes.Trace{Lost: func(context.Context, recipes.LostInfo) { time.Sleep(time.Minute) }}))
		l1, l2 := w.granted(c.RWMutex("q1").Lock(bg)), w.granted(c.RWMutex("q2").Lock(bg))
		lost1, lost2 := l1.Lost(), l2.Lost()
		w.store.Faults().Expire(c.session())
		assert.True(w, isClosed(lost1))
		assert.True(w, isClosed(lost2), "Lost of the second lock has to close, because its node is gone")
		time.Sleep(3 * time.Minute)
		_ = l1.Unlock()
		_ = l2.Unlock()
	})
}
