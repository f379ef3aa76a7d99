package recipes_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
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

func TestCloseReportsTheLocksThatItTakesAway(t *testing.T) {
	inWorld(t, func(w *world) {
		var lost []recipes.LostInfo
		ended := 0
		var log bytes.Buffer
		c := w.client("a", logTo(&log), recipes.WithTrace(&recipes.Trace{
			Lost:         func(_ context.Context, i recipes.LostInfo) { lost = append(lost, i) },
			SessionEnded: func(context.Context, recipes.SessionEndedInfo) { ended++ },
		}))
		w.unlock(w.won(c.lock(bg)))
		held := w.won(c.lock(bg))
		require.NoError(w, c.Close())
		require.Len(w, lost, 1)
		assert.Equal(w, held.Node(), lost[0].Node)
		require.ErrorIs(w, lost[0].Err, recipes.ErrLost)
		require.ErrorIs(w, lost[0].Err, recipes.ErrClosed)
		assert.Equal(w, 1, ended)
		assert.Contains(w, log.String(), `level=WARN msg="dlock: lock lost" lock=q node=a-W-0000000001 error="client closed"`)
	})
}

func logTo(log io.Writer) recipes.Option {
	return recipes.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

type callerKey struct{}

func from(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// callers returns hooks that append their name and the caller stored in their
// context to seen, so that tests can check whose context a hook gets.
func callers(seen *[]string) *recipes.Trace {
	var mu sync.Mutex
	note := func(ctx context.Context, hook string) {
		mu.Lock()
		defer mu.Unlock()
		caller, _ := ctx.Value(callerKey{}).(string)
		*seen = append(*seen, hook+" "+caller)
	}
	return &recipes.Trace{
		Connected:    func(ctx context.Context, _ recipes.ConnectedInfo) { note(ctx, "connected") },
		SessionEnded: func(ctx context.Context, _ recipes.SessionEndedInfo) { note(ctx, "ended") },
		Started:      func(ctx context.Context, _ recipes.StartedInfo) { note(ctx, "started") },
		Queued:       func(ctx context.Context, _ recipes.QueuedInfo) { note(ctx, "queued") },
		Waiting:      func(ctx context.Context, _ recipes.WaitingInfo) { note(ctx, "waiting") },
		Granted:      func(ctx context.Context, _ recipes.GrantedInfo) { note(ctx, "granted") },
		Failed:       func(ctx context.Context, _ recipes.FailedInfo) { note(ctx, "failed") },
		Retrying:     func(ctx context.Context, _ recipes.RetryingInfo) { note(ctx, "retrying") },
		Downgraded:   func(ctx context.Context, _ recipes.DowngradedInfo) { note(ctx, "downgraded") },
		Released:     func(ctx context.Context, _ recipes.ReleasedInfo) { note(ctx, "released") },
		Lost:         func(ctx context.Context, _ recipes.LostInfo) { note(ctx, "lost") },
		Reaped:       func(ctx context.Context, _ recipes.ReapedInfo) { note(ctx, "reaped") },
	}
}

func TestHooksGetTheContextOfTheirCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		var seen []string
		c := recipes.NewClient(w.store, recipes.WithTrace(callers(&seen)), recipes.WithTimeout(time.Minute))
		m := c.RWMutex("q")
		held := w.won(w.client("h").lock(bg))
		waiting := going(func() (*recipes.Lock, error) { return m.Lock(from(bg, "lock")) })
		w.unlock(held)
		l := w.won(waiting)
		require.NoError(w, l.Downgrade(from(bg, "downgrade")))
		_, err := m.Lock(l.Context(from(bg, "upgrade")))
		require.ErrorIs(w, err, recipes.ErrUpgrade)
		w.unlock(l)
		l, err = m.Lock(from(bg, "again"))
		require.NoError(w, err)
		require.NoError(w, c.Close())
		require.ErrorIs(w, l.Unlock(), recipes.ErrClosed)
		slices.Sort(seen[len(seen)-2:]) // a session and its locks end on goroutines of their own
		assert.Equal(w, []string{
			"started lock", "connected lock", "queued lock", "waiting lock", "granted lock", "downgraded downgrade",
			"started upgrade", "failed upgrade", "released lock", "started again", "queued again", "granted again", "ended ", "lost again",
		}, seen)
	})
}

func TestTheContextOfReleasedOutlivesTheCall(t *testing.T) {
	inWorld(t, func(w *world) {
		var err error
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Released: func(ctx context.Context, _ recipes.ReleasedInfo) { err = ctx.Err() },
		}))
		ctx, cancel := context.WithCancel(bg)
		l := w.won(c.lock(ctx, recipes.WithTimeout(time.Second)))
		cancel()
		w.unlock(l)
		assert.NoError(w, err)
	})
}

func TestACallWithoutALockIsTraced(t *testing.T) {
	inWorld(t, func(w *world) {
		var failed []recipes.FailedInfo
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Failed: func(_ context.Context, i recipes.FailedInfo) { failed = append(failed, i) },
		}))
		last := func() recipes.FailedInfo {
			require.NotEmpty(w, failed)
			return failed[len(failed)-1]
		}
		held := w.won(w.client("h").lock(bg))

		_, err := c.RWMutex("q", recipes.WithTimeout(3*time.Second)).RLock(bg)
		require.ErrorIs(w, err, recipes.ErrTimeout)
		assert.Equal(w, recipes.FailedInfo{
			Recipe: "lock", Lock: "q", Node: "a-R-0000000001", Mode: recipes.Shared, Waited: 3 * time.Second, Err: err,
		}, last())

		_, err = c.RWMutex("q").TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		assert.Equal(w, recipes.FailedInfo{Recipe: "lock", Lock: "q", Mode: recipes.Exclusive, Try: true, Err: err}, last())

		_, err = c.RWMutex("//").Lock(bg)
		require.ErrorIs(w, err, recipes.ErrBadName)
		assert.Equal(w, recipes.FailedInfo{Recipe: "lock", Lock: "//", Mode: recipes.Exclusive, Err: err}, last())

		w.unlock(held)
		w.unlock(w.won(c.lock(bg)))
		require.NoError(w, c.Close())
		_, err = c.RWMutex("q").Lock(bg)
		require.ErrorIs(w, err, recipes.ErrClosed)
		assert.Equal(w, err, last().Err)
		assert.Len(w, failed, 4)
	})
}

// A metric of waiting calls counts up at Started and down at Granted and
// Failed, so it must return to zero.
func TestEachStartedCallIsGrantedOrFails(t *testing.T) {
	inWorld(t, func(w *world) {
		var waiting atomic.Int64
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Started: func(context.Context, recipes.StartedInfo) { waiting.Add(1) },
			Granted: func(context.Context, recipes.GrantedInfo) { waiting.Add(-1) },
			Failed:  func(context.Context, recipes.FailedInfo) { waiting.Add(-1) },
		}))
		held := w.won(w.client("h").lock(bg))
		m := c.RWMutex("q", recipes.WithTimeout(3*time.Second))
		_, err := m.TryLock(bg)
		require.ErrorIs(w, err, recipes.ErrLocked)
		assert.Zero(w, waiting.Load(), "after TryLock")
		timedOut := going(func() (*recipes.Lock, error) { return m.RLock(bg) })
		w.waits(timedOut)
		assert.EqualValues(w, 1, waiting.Load())
		require.ErrorIs(w, (<-timedOut).err, recipes.ErrTimeout)
		assert.Zero(w, waiting.Load(), "after a timeout")
		waiter := c.lock(bg)
		w.store.Faults().Expire(c.session()) // the waiter rejoins
		w.waits(waiter)
		assert.EqualValues(w, 1, waiting.Load())
		w.unlock(held)
		got := <-waiter
		require.NoError(w, got.err)
		w.unlock(w.won(c.rlock(got.lock.Context(bg))), got.lock)
		assert.Zero(w, waiting.Load(), "after a re-entry")
		reader := w.won(c.rlock(bg))
		_, err = c.RWMutex("q").Lock(reader.Context(bg))
		require.ErrorIs(w, err, recipes.ErrUpgrade)
		w.unlock(reader)
		assert.Zero(w, waiting.Load(), "after an upgrade")
		//lint:ignore SA1012 a mistake of the caller
		_, err = c.RWMutex("q").Lock(nil)
		require.Error(w, err)
		assert.Zero(w, waiting.Load(), "after a call without a context")
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

// eras is a store whose sessions describe the generation of the data, as stores
// do that can lose their data.
type eras struct {
	driver.Connector
	name string
	last driver.Session
}

type eraSession struct {
	driver.Session
	driver.Unsupported
	name string
}

func (e *eras) Connect(ctx context.Context) (driver.Session, error) {
	s, err := e.Connector.Connect(ctx)
	e.last = s
	return eraSession{Session: s, name: e.name}, err
}

func (s eraSession) Describe() driver.SessionInfo { return driver.SessionInfo{Generation: s.name} }

func TestConnectedNamesTheGenerationThatHasEnded(t *testing.T) {
	inWorld(t, func(w *world) {
		var log bytes.Buffer
		var before []string
		store := &eras{Connector: w.store}
		c := w.connecting(store, logTo(&log), recipes.WithTrace(&recipes.Trace{
			Connected: func(_ context.Context, i recipes.ConnectedInfo) { before = append(before, i.Before) },
		}))
		for _, store.name = range []string{"a", "a", "b", "b", "c"} {
			require.NoError(w, c.Ping(bg))
			w.store.Faults().Expire(store.last)
			synctest.Wait()
		}
		assert.Equal(w, []string{"", "", "a", "", "b"}, before)
		assert.Contains(w, log.String(), " generation=c before=b")
	})
}

type endings struct{ granted, failed, released, lost int }

func (e *endings) trace(granted func()) *recipes.Trace {
	return &recipes.Trace{
		Granted: func(context.Context, recipes.GrantedInfo) {
			granted()
			e.granted++
		},
		Failed:   func(context.Context, recipes.FailedInfo) { e.failed++ },
		Released: func(context.Context, recipes.ReleasedInfo) { e.released++ },
		Lost: func(context.Context, recipes.LostInfo) {
			if e.granted == 0 {
				panic("Lost before Granted has returned")
			}
			e.lost++
		},
	}
}

func TestLostComesAfterGranted(t *testing.T) {
	inWorld(t, func(w *world) {
		var c *client
		var seen endings
		c = w.client("a", recipes.WithTrace(seen.trace(func() {
			w.store.Faults().Expire(c.session())
			synctest.Wait()
		})))
		l, err := c.RWMutex("q").Lock(bg)
		require.NoError(w, err)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
		synctest.Wait()
		assert.Equal(w, endings{granted: 1, lost: 1}, seen)
	})
}

func TestEachTraceSeesHowAPanickingCallEnds(t *testing.T) {
	for _, loss := range []bool{false, true} {
		t.Run(fmt.Sprintf("loss %v", loss), func(t *testing.T) {
			inWorld(t, func(w *world) {
				var c *client
				var seen [2]endings
				c = w.client("a",
					recipes.WithTrace(seen[0].trace(func() {})),
					recipes.WithTrace(&recipes.Trace{Granted: func(context.Context, recipes.GrantedInfo) {
						if loss {
							w.store.Faults().Expire(c.session())
							synctest.Wait()
						}
						panic("hook")
					}}),
					recipes.WithTrace(seen[1].trace(func() {})))
				require.PanicsWithValue(w, "hook", func() { _, _ = c.RWMutex("q").Lock(bg) })
				want := endings{granted: 1, released: 1}
				if loss {
					want = endings{granted: 1, lost: 1}
				}
				synctest.Wait()
				assert.Equal(w, [2]endings{want, want}, seen)
				w.unlock(w.won(w.client("b").lock(bg)))
			})
		})
	}
}

func TestGrantedTellsATryFromALock(t *testing.T) {
	inWorld(t, func(w *world) {
		var tries []bool
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Granted: func(_ context.Context, i recipes.GrantedInfo) { tries = append(tries, i.Try) },
		}))
		m := c.RWMutex("q")
		for _, lock := range []func(context.Context) (*recipes.Lock, error){m.Lock, m.TryLock, m.RLock, m.TryRLock} {
			l, err := lock(bg)
			require.NoError(w, err)
			w.unlock(l)
		}
		assert.Equal(w, []bool{false, true, false, true}, tries)
	})
}

func TestTheEndOfAHoldIsReportedWithItsMode(t *testing.T) {
	inWorld(t, func(w *world) {
		var ends []string
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Released: func(_ context.Context, i recipes.ReleasedInfo) { ends = append(ends, "released "+i.Mode.String()) },
			Lost:     func(_ context.Context, i recipes.LostInfo) { ends = append(ends, "lost "+i.Mode.String()) },
		}))
		remove := func(l *recipes.Lock) { w.store.Faults().RemoveNode("q", l.Node()) }

		w.unlock(w.won(c.lock(bg)))
		w.unlock(w.won(c.rlock(bg)))
		outer := w.won(c.lock(bg))
		inner := w.won(c.rlock(outer.Context(bg)))
		w.unlock(outer, inner) // shared since the Unlock of outer

		noticed := w.won(c.lock(bg))
		time.Sleep(soon) // until the client watches the node
		remove(noticed)
		<-noticed.Lost()
		require.ErrorIs(w, noticed.Unlock(), recipes.ErrLost)
		synctest.Wait()
		unnoticed := w.won(c.lock(bg))
		remove(unnoticed)
		require.ErrorIs(w, unnoticed.Unlock(), recipes.ErrLost)
		synctest.Wait()
		downgraded := w.won(c.lock(bg))
		require.NoError(w, downgraded.Downgrade(bg))
		remove(downgraded)
		require.ErrorIs(w, downgraded.Unlock(), recipes.ErrLost)
		synctest.Wait()

		assert.Equal(w, []string{"released exclusive", "released shared", "released shared",
			"lost exclusive", "lost exclusive", "lost shared"}, ends)
	})
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

// A hook that hangs must delay neither the heartbeats nor the locks. Its next
// call must report the smallest Left of the heartbeats in between.
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

// A metric of held locks per mode counts up at the grant and down at the end of
// a hold, so both must report the same mode.
func TestTheEndOfAHoldTellsTheModeOfItsGrant(t *testing.T) {
	inWorld(t, func(w *world) {
		held := make(map[recipes.Mode]int)
		c := w.client("a", recipes.WithTrace(&recipes.Trace{
			Granted:  func(_ context.Context, i recipes.GrantedInfo) { held[i.Mode]++ },
			Released: func(_ context.Context, i recipes.ReleasedInfo) { held[i.Granted]-- },
			Lost:     func(_ context.Context, i recipes.LostInfo) { held[i.Granted]-- },
		}))
		for _, end := range []func(*recipes.Lock){
			func(l *recipes.Lock) { w.unlock(l) },
			func(l *recipes.Lock) {
				w.store.Faults().Expire(c.session())
				<-l.Lost()
				require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
			},
		} {
			l := w.won(c.lock(bg))
			require.NoError(w, l.Downgrade(bg))
			end(l)
			synctest.Wait()
			assert.Equal(w, map[recipes.Mode]int{recipes.Exclusive: 0}, held)
		}
	})
}

type callKey struct{}

func call(name string) context.Context { return context.WithValue(bg, callKey{}, name) }

type ledger struct {
	mu    sync.Mutex
	lines []string
}

func (l *ledger) note(ctx context.Context, hook string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprint(ctx.Value(callKey{}), " ", hook))
}

func (l *ledger) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l *ledger) trace() recipes.Option {
	return recipes.WithTrace(&recipes.Trace{
		Granted:  func(ctx context.Context, _ recipes.GrantedInfo) { l.note(ctx, "granted") },
		Failed:   func(ctx context.Context, _ recipes.FailedInfo) { l.note(ctx, "failed") },
		Released: func(ctx context.Context, _ recipes.ReleasedInfo) { l.note(ctx, "released") },
		Lost:     func(ctx context.Context, _ recipes.LostInfo) { l.note(ctx, "lost") },
	})
}

func TestGrantsAndTheirCounterpartBalance(t *testing.T) {
	scenes := map[string]func(w *world, c *client, l *ledger){
		"one after the other": func(w *world, c *client, l *ledger) {
			for _, name := range []string{"1", "2", "3"} {
				w.unlock(w.won(c.lock(call(name))))
				assert.Equal(w, []string{name + " granted", name + " released"}, l.taken())
			}
			r, err := c.RWMutex("q").TryRLock(call("4"))
			require.NoError(w, err)
			w.unlock(r)
			assert.Equal(w, []string{"4 granted", "4 released"}, l.taken())
		},
		"a waiter": func(w *world, c *client, l *ledger) {
			first := w.won(c.lock(call("1")))
			second := c.lock(call("2"))
			w.unlock(first)
			w.unlock(w.won(second))
			assert.ElementsMatch(w, []string{"1 granted", "1 released", "2 granted", "2 released"}, l.taken())
		},
		"readers together": func(w *world, c *client, l *ledger) {
			first, second := w.won(c.rlock(call("1"))), w.won(c.rlock(call("2")))
			w.unlock(first)
			assert.Equal(w, []string{"1 granted", "2 granted", "1 released"}, l.taken())
			w.unlock(second)
			assert.Equal(w, []string{"2 released"}, l.taken())
		},
		"re-entry that outlasts the first Lock": func(w *world, c *client, l *ledger) {
			beside := w.won(c.rlock(call("1")))
			outer := w.won(c.rlock(call("2")))
			inner := w.won(c.rlock(outer.Context(call("3"))))
			w.unlock(outer)
			assert.Equal(w, []string{"1 granted", "2 granted"}, l.taken())
			w.unlock(inner)
			assert.Equal(w, []string{"2 released"}, l.taken())
			w.unlock(beside)
			assert.Equal(w, []string{"1 released"}, l.taken())
		},
		"a call that is cancelled as it wins": func(w *world, c *client, l *ledger) {
			ctx := &endsWhenAsked{}
			ctx.Context, ctx.cancel = context.WithCancel(call("2"))
			first := w.won(c.lock(call("1")))
			second := c.lock(ctx)
			w.unlock(first)
			require.ErrorIs(w, w.failed(second), context.Canceled)
			time.Sleep(soon)
			assert.ElementsMatch(w, []string{"1 granted", "1 released", "2 failed"}, l.taken())
		},
		"a downgrade": func(w *world, c *client, l *ledger) {
			first := w.won(c.lock(call("1")))
			second := c.rlock(call("2"))
			require.NoError(w, first.Downgrade(bg))
			w.unlock(w.won(second), first)
			assert.Equal(w, []string{"1 granted", "2 granted", "2 released", "1 released"}, l.taken())
		},
		"readers that give their place up": func(w *world, c *client, l *ledger) {
			first := w.won(c.rlock(call("1")))
			second := w.won(c.rlock(call("2")))
			writer := w.client("b").lock(bg)
			third := c.rlock(call("3"))
			w.unlock(first, second)
			w.unlock(w.won(writer))
			w.unlock(w.won(third))
			assert.Equal(w, []string{"1 granted", "2 granted", "1 released", "2 released", "3 granted", "3 released"}, l.taken())
		},
		"a lost session": func(w *world, c *client, l *ledger) {
			first := w.won(c.rlock(call("1")))
			second := w.won(c.rlock(call("2")))
			third := w.won(c.rlock(call("3")))
			w.unlock(second)
			w.store.Faults().Expire(c.session())
			<-first.Lost()
			time.Sleep(soon)
			require.ErrorIs(w, first.Unlock(), recipes.ErrLost)
			require.ErrorIs(w, third.Unlock(), recipes.ErrLost)
			lines := l.taken()
			assert.Equal(w, []string{"1 granted", "2 granted", "3 granted", "2 released"}, lines[:4])
			assert.ElementsMatch(w, []string{"1 lost", "3 lost"}, lines[4:])
		},
		"a node that was removed": func(w *world, c *client, l *ledger) {
			writer := w.won(c.lock(call("1")))
			w.store.Faults().RemoveNode("q", writer.Node())
			_ = writer.Unlock()
			time.Sleep(soon)
			lines := l.taken()
			assert.Len(w, lines, 2)
			assert.Equal(w, "1 granted", lines[0])
		},
		"Close": func(w *world, c *client, l *ledger) {
			first, second := w.won(c.rlock(call("1"))), w.won(c.rlock(call("2")))
			require.NoError(w, c.Close())
			require.ErrorIs(w, first.Unlock(), recipes.ErrLost)
			require.ErrorIs(w, second.Unlock(), recipes.ErrLost)
			lines := l.taken()
			assert.Equal(w, []string{"1 granted", "2 granted"}, lines[:2])
			assert.ElementsMatch(w, []string{"1 lost", "2 lost"}, lines[2:])
		},
	}
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				l := new(ledger)
				scene(w, w.client("a", l.trace()), l)
				time.Sleep(soon)
				synctest.Wait()
				assert.Empty(w, l.taken(), "a hook has run after the scene was over")
			})
		})
	}
}

// endsWhenAsked ends during the second call of Err, which is after the grant
// but before Lock returns.
type endsWhenAsked struct {
	context.Context
	cancel context.CancelFunc
	asked  atomic.Int64
}

func (c *endsWhenAsked) Err() error {
	if c.asked.Add(1) == 2 {
		c.cancel()
	}
	return c.Context.Err()
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
