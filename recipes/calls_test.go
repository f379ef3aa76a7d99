package recipes_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

// calls returns, by name, a call of each method that sends a request.
func (c *client) calls(name string, ran *bool) map[string]func(context.Context) error {
	m, s, e := c.RWMutex(name), c.Semaphore(name, 1), c.Election(name)
	f := func(context.Context, *recipes.Lock) error { *ran = true; return nil }
	lock := func(take func(context.Context) (*recipes.Lock, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			l, err := take(ctx)
			if err != nil {
				return err
			}
			return l.Unlock()
		}
	}
	all := func(take func(context.Context, ...recipes.Locker) (*recipes.Locks, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			l, err := take(ctx, m)
			if err != nil {
				return err
			}
			return l.Unlock()
		}
	}
	return map[string]func(context.Context) error{
		"Lock":       lock(m.Lock),
		"RLock":      lock(m.RLock),
		"TryLock":    lock(m.TryLock),
		"TryRLock":   lock(m.TryRLock),
		"Acquire":    lock(func(ctx context.Context) (*recipes.Lock, error) { return s.Acquire(ctx, 1) }),
		"TryAcquire": lock(func(ctx context.Context) (*recipes.Lock, error) { return s.TryAcquire(ctx, 1) }),
		"Campaign":   lock(e.Campaign),
		"LockAll":    all(recipes.LockAll),
		"TryLockAll": all(recipes.TryLockAll),
		"WithLock":   func(ctx context.Context) error { return m.WithLock(ctx, f) },
		"WithRLock":  func(ctx context.Context) error { return m.WithRLock(ctx, f) },
		"Once":       func(ctx context.Context) error { _, err := m.Once(ctx, time.Now(), f); return err },
		"OncePer":    func(ctx context.Context) error { _, err := m.OncePer(ctx, time.Hour, f); return err },
		"Run":        func(ctx context.Context) error { return e.Run(ctx, f) },
		"Leader":     func(ctx context.Context) error { _, err := e.Leader(ctx); return err },
		"Observe of an election": func(ctx context.Context) (err error) {
			for _, err = range e.Observe(ctx) {
				break
			}
			return err
		},
		"Observe": func(ctx context.Context) (err error) {
			for _, err = range m.Observe(ctx) {
				break
			}
			return err
		},
		"Queue":                func(ctx context.Context) error { _, err := m.Queue(ctx); return err },
		"Queue of a semaphore": func(ctx context.Context) error { _, err := s.Queue(ctx); return err },
		"Value":                func(ctx context.Context) error { _, _, err := m.Value(ctx); return err },
		"Remove": func(ctx context.Context) error {
			return m.Remove(ctx, recipes.Contender{Node: "a-W-0000000000", Token: 1})
		},
		"Walk": func(ctx context.Context) error { _, err := c.Walk(ctx, name); return err },
		"Ping": c.Ping,
	}
}

// sayNotRun lists calls that return ErrNotRun if their function did not run.
var sayNotRun = []string{"WithLock", "WithRLock", "Once", "OncePer"}

// matches requires that err matches all wanted errors and no others.
func (w *world) matches(err error, want ...error) {
	w.Helper()
	for _, target := range []error{
		recipes.ErrNotRun, recipes.ErrUnlock, recipes.ErrLost, recipes.ErrNotHeld, recipes.ErrTimeout, recipes.ErrClosed, recipes.ErrBadName,
		driver.ErrUnavailable, context.DeadlineExceeded, context.Canceled, fs.ErrPermission, errors.ErrUnsupported,
	} {
		if !slices.Contains(want, target) {
			assert.NotErrorIs(w, err, target)
		}
	}
	for _, target := range want {
		assert.ErrorIs(w, err, target)
	}
}

func TestEveryCallSaysWhatIsWrong(t *testing.T) {
	inWorld(t, func(w *world) {
		c, closed, closing := w.client("a"), w.client("b"), w.client("c")
		require.NoError(w, closed.Close())
		held := w.won(closing.lock(bg))
		shutDown := closing.shutdown(bg)
		cancelled, cancel := context.WithCancel(bg)
		cancel()
		ran := false
		for what, wrong := range map[string]struct {
			*client
			name   string
			ctx    context.Context
			want   error
			spared []string
		}{
			"bad name":       {c, "a//b", bg, recipes.ErrBadName, []string{"Ping"}},
			"nil context":    {c, "q", nil, nil, nil},
			"cancelled":      {c, "q", cancelled, context.Canceled, nil},
			"closed":         {closed, "q", bg, recipes.ErrClosed, nil},
			"shutdown begun": {closing, "q", bg, recipes.ErrClosed, []string{"Walk", "Remove"}}, // operators can still see and remove holders
		} {
			for name, call := range wrong.calls(wrong.name, &ran) {
				if slices.Contains(wrong.spared, name) {
					continue
				}
				err := call(wrong.ctx)
				w.Log(what, name, err)
				if wrong.ctx == nil {
					assert.ErrorContains(w, err, "nil context")
				}
				var want []error
				if wrong.want != nil {
					want = append(want, wrong.want)
				}
				if slices.Contains(sayNotRun, name) {
					want = append(want, recipes.ErrNotRun)
				}
				w.matches(err, want...)
			}
		}
		assert.False(w, ran)
		var none context.Context
		assert.EqualError(w, held.Downgrade(none), "dlock: q: nil context")
		assert.NoError(w, held.Context(none).Err())
		w.unlock(held)
		require.NoError(w, <-shutDown)
	})
}

// The lost lock's context is cancelled, but context.Canceled alone would not
// tell of the loss.
func TestEveryCallWithTheContextOfALostLockTellsOfTheLoss(t *testing.T) {
	inWorld(t, func(w *world) {
		c := w.client("a")
		l := w.won(c.lock(bg))
		inside := l.Context(bg)
		w.store.Faults().RemoveNode("q", l.Node())
		<-l.Lost()
		ran := false
		for _, ctx := range []context.Context{inside, recipes.WithoutReentry(inside)} {
			for _, lock := range []string{"q", "other"} {
				for name, call := range c.calls(lock, &ran) {
					assert.ErrorIs(w, call(ctx), recipes.ErrLost, "%s %s", name, lock)
				}
			}
		}
		assert.False(w, ran)
		require.ErrorIs(w, l.Unlock(), recipes.ErrLost)
	})
}

// asks lists calls that take no lock. Their errors do not match ErrTimeout.
var asks = []string{"Leader", "Observe", "Observe of an election", "Queue", "Queue of a semaphore", "Value", "Remove", "Walk", "Ping"}

func forEachCall(t *testing.T, f func(w *world, name string)) {
	unused := client{Client: recipes.NewClient(nil)}
	for name := range unused.calls("q", nil) {
		t.Run(name, func(t *testing.T) { inWorld(t, func(w *world) { f(w, name) }) })
	}
}

func TestEveryCallThatTimesOutTellsOfTheOutage(t *testing.T) {
	forEachCall(t, func(w *world, name string) {
		c := w.client("a")
		want := []error{context.DeadlineExceeded, driver.ErrUnavailable}
		if !slices.Contains(asks, name) {
			want = append(want, recipes.ErrTimeout)
		}
		if slices.Contains(sayNotRun, name) {
			want = append(want, recipes.ErrNotRun)
		}
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		heal := w.store.Faults().CutOff(c.session())
		ran := false
		w.matches(c.calls("q", &ran)[name](ctx), want...)
		assert.False(w, ran)
		heal()
	})
}

// endingAt ends the session at the first requests for op, where zero means any.
func (w *world) endingAt(op faults.Op, requests int) driver.Connector {
	return faults.New(w.store, func(_ context.Context, r faults.Request) faults.Fault {
		if op != 0 && r.Op != op || r.Op == faults.OpConnect || r.Op == faults.OpClose || r.Stage != faults.StageRequest || requests == 0 {
			return faults.Fault{}
		}
		requests--
		return faults.Fault{EndSession: true}
	})
}

func TestEveryCallWhoseSessionEndsConnectsAgain(t *testing.T) {
	forEachCall(t, func(w *world, name string) {
		err := w.connecting(w.endingAt(0, 1)).calls("q", new(bool))[name](bg)
		switch name {
		case "Leader":
			assert.ErrorIs(w, err, recipes.ErrNoLeader)
		case "Remove":
			assert.ErrorIs(w, err, recipes.ErrGone)
		default:
			assert.NoError(w, err)
		}
		if slices.Contains(asks, name) {
			err := w.connecting(w.endingAt(0, 1000)).calls("q", nil)[name](bg)
			w.matches(err, driver.ErrUnavailable)
			assert.ErrorIs(w, err, driver.ErrSessionEnded)
		}
	})
}

func TestEveryCallInFlightEndsWithClose(t *testing.T) {
	forEachCall(t, func(w *world, name string) {
		c := w.client("a")
		w.store.Faults().Delay(c.session(), time.Second)
		ended := make(chan error, 1)
		go func() { ended <- c.calls("q", new(bool))[name](bg) }()
		synctest.Wait()
		require.NoError(w, c.Close())
		assert.ErrorIs(w, <-ended, recipes.ErrClosed)
	})
}

// basic returns a connector whose sessions have no optional methods.
func basic(c driver.Connector) driver.Connector {
	return wrapped(c, func(s driver.Session) driver.Session { return struct{ driver.Session }{s} })
}

func TestADriverWithoutTheAbilitySaysSo(t *testing.T) {
	inWorld(t, func(w *world) {
		c, ran := w.clientOf(basic(w.store), "a"), false
		for name, call := range c.calls("q", &ran) {
			switch name {
			case "Walk", "Remove", "Value":
				w.matches(call(bg), errors.ErrUnsupported)
			case "Once", "OncePer":
				w.matches(call(bg), errors.ErrUnsupported, recipes.ErrNotRun)
			}
		}
		assert.False(w, ran)
		l := w.won(c.lock(bg))
		w.matches(l.SetValue(bg, nil), errors.ErrUnsupported)
		w.unlock(l)
	})
}
