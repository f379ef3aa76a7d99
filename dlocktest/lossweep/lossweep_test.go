package lossweep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

type recorder struct {
	testing.TB
	errors, logs []string
}

func (r *recorder) Error(args ...any)                 { r.errors = append(r.errors, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Log(args ...any)                   { r.logs = append(r.logs, fmt.Sprint(args...)) }

// found returns the failures and logs that Run would report, by the moment's
// name.
func found(t *testing.T, work func(t *testing.T, s *Sweep) error) (failures, logs map[string]string) {
	t.Helper()
	failures, logs = make(map[string]string), make(map[string]string)
	note := func(name string, s, base *Sweep) {
		r := &recorder{TB: t}
		s.report(r, base)
		if len(r.errors) > 0 {
			failures[name] = strings.Join(r.errors, "\n")
		}
		if len(r.logs) > 0 {
			logs[name] = strings.Join(r.logs, "\n")
		}
	}
	base := play(t, moment{}, work)
	note("no-loss", base, nil)
	if len(failures) > 0 {
		return failures, logs
	}
	for _, m := range base.moments() {
		note(m.name, play(t, m, work), base)
	}
	return failures, logs
}

func findsNothing(t *testing.T, work func(t *testing.T, s *Sweep) error) {
	t.Helper()
	failures, logs := found(t, work)
	assert.Empty(t, failures)
	assert.Empty(t, logs)
}

func names(of map[string]string) []string { return slices.Collect(maps.Keys(of)) }

// locked calls work with a lock held. It ignores the error of Unlock.
func locked(work func(t *testing.T, s *Sweep, l *dlock.Lock) error) func(*testing.T, *Sweep) error {
	return func(t *testing.T, s *Sweep) error {
		l, err := s.Client().RWMutex("stock").Lock(t.Context())
		if err != nil {
			return err
		}
		defer l.Unlock()
		return work(t, s, l)
	}
}

// steps writes three times under a lock, and calls check before each write.
func steps(check func(ctx context.Context, lock *dlock.Lock) error, write func(s *Sweep, l *dlock.Lock, what string) error) func(*testing.T, *Sweep) error {
	return locked(func(t *testing.T, s *Sweep, l *dlock.Lock) (err error) {
		defer func() { err = errors.Join(err, l.Unlock()) }()
		ctx := l.Context(t.Context())
		for _, what := range []string{"first", "second", "third"} {
			if err := check(ctx, l); err != nil {
				return err
			}
			if err := write(s, l, what); err != nil {
				return err
			}
		}
		return nil
	})
}

func carelessly(context.Context, *dlock.Lock) error       { return nil }
func askErr(_ context.Context, l *dlock.Lock) error       { return l.Err() }
func askContext(ctx context.Context, _ *dlock.Lock) error { return ctx.Err() }

func unchecked(s *Sweep, _ *dlock.Lock, what string) error { s.Write(what); return nil }
func fenced(s *Sweep, l *dlock.Lock, what string) error    { return s.WriteToken(l.Token(), what) }

func TestAFunctionThatDoesNotCheckIsReported(t *testing.T) {
	failures, _ := found(t, steps(carelessly, unchecked))
	assert.ElementsMatch(t, []string{"expired-at-write-1", "expired-at-write-2", "paused-at-write-1", "paused-at-write-2"}, names(failures))
	report := failures["expired-at-write-1"]
	assert.Regexp(t, `^lossweep: write 2, "second", was made while no lock was held \(lossweep_test\.go:\d+(, called from lossweep_test\.go:\d+)+\); the lock had been lost\nlossweep: write 3, "third",`, report)
}

func TestAFunctionThatAsksErrBeforeEachWriteIsFine(t *testing.T) {
	findsNothing(t, steps(askErr, unchecked))
}

func TestAContextEndsLateAfterAPause(t *testing.T) {
	failures, _ := found(t, steps(askContext, unchecked))
	assert.ElementsMatch(t, []string{"paused-at-write-1", "paused-at-write-2"}, names(failures))
}

func TestAFunctionThatSendsTokensIsFine(t *testing.T) {
	findsNothing(t, steps(carelessly, fenced))
}

func TestAFunctionThatIgnoresTheRefusalIsReported(t *testing.T) {
	failures, _ := found(t, locked(func(t *testing.T, s *Sweep, l *dlock.Lock) error {
		err := s.WriteToken(l.Token(), "order")
		assert.True(t, err == nil || errors.Is(err, ErrStale))
		return nil
	}))
	assert.Equal(t, map[string]string{
		"expired-at-write-1": "lossweep: the function returned nil after a loss, but it has made only 0 of 1 writes",
		"paused-at-write-1":  "lossweep: the function returned nil after a loss, but it has made only 0 of 1 writes",
	}, failures)
}

func TestAFunctionThatStopsButReturnsNilIsReported(t *testing.T) {
	failures, _ := found(t, func(t *testing.T, s *Sweep) error {
		_ = steps(askErr, unchecked)(t, s)
		return nil
	})
	assert.ElementsMatch(t, []string{"expired-at-write-1", "expired-at-write-2", "paused-at-write-1", "paused-at-write-2"}, names(failures))
	assert.Contains(t, failures["expired-at-write-2"], "returned nil after a loss, but it has made only 2 of 3 writes")
}

func TestAFunctionThatIgnoresTheErrorOfUnlockIsMentioned(t *testing.T) {
	failures, logs := found(t, locked(func(_ *testing.T, s *Sweep, l *dlock.Lock) error { return unchecked(s, l, "order") }))
	assert.Empty(t, failures)
	assert.ElementsMatch(t, []string{"expired-before-request-2-delete", "paused-before-request-2-delete", "expired-at-write-1", "paused-at-write-1"}, names(logs))
	assert.Contains(t, logs["expired-at-write-1"], "does it look at the error of Unlock?")
}

// unlocked ignores one error of TryLock and writes without the lock.
func unlocked(ignored error, write func(s *Sweep, l *dlock.Lock, what string) error) func(*testing.T, *Sweep) error {
	return func(t *testing.T, s *Sweep) error {
		l, err := s.Client().RWMutex("stock").TryLock(t.Context())
		switch {
		case err == nil:
			defer l.Unlock()
		case !errors.Is(err, ignored):
			return err
		}
		return write(s, l, "order")
	}
}

func TestAFunctionThatIgnoresTheErrorOfLockIsReported(t *testing.T) {
	for name, ignored := range map[string]error{"lock-1-held-by-another": dlock.ErrLocked, "store-down": driver.ErrUnavailable} {
		failures, _ := found(t, unlocked(ignored, unchecked))
		assert.Equal(t, []string{name}, names(failures))
		assert.Contains(t, failures[name], `write 1, "order", was made while no lock was held`)
		failures, _ = found(t, unlocked(ignored, fenced))
		assert.Equal(t, []string{name}, names(failures))
		assert.Contains(t, failures[name], `write 1, "order", has token 0, which no lock`)
	}
}

// Another client holds only one lock per run, so work still gets the earlier
// locks.
func TestEachLockIsHeldByAnother(t *testing.T) {
	failures, _ := found(t, func(t *testing.T, s *Sweep) error {
		c := s.Client()
		outer, err := c.RWMutex("outer").TryLock(t.Context())
		if err != nil {
			return err
		}
		s.Write("outer")
		if err := outer.Unlock(); err != nil {
			return err
		}
		units, err := c.Semaphore("inner", 2).TryAcquire(t.Context(), 1)
		if err == nil {
			defer units.Unlock()
		}
		s.Write("inner")
		return err
	})
	assert.Contains(t, failures, "lock-2-held-by-another")
	assert.NotContains(t, failures, "lock-1-held-by-another")
}

func TestAFunctionThatWaitsOrGivesUpIsFine(t *testing.T) {
	failures, _ := found(t, func(t *testing.T, s *Sweep) error {
		c := s.Client()
		if l, err := c.RWMutex("stock").TryLock(t.Context()); errors.Is(err, dlock.ErrLocked) {
			return nil
		} else if err == nil {
			_ = l.Unlock()
		}
		for {
			if err := steps(askErr, unchecked)(t, s); !errors.Is(err, driver.ErrUnavailable) {
				return err
			}
		}
	})
	assert.Empty(t, failures)
}

func TestAFunctionThatTriesAgainIsFine(t *testing.T) {
	findsNothing(t, func(t *testing.T, s *Sweep) error {
		for {
			if err := steps(askErr, unchecked)(t, s); !errors.Is(err, dlock.ErrLost) {
				return err
			}
		}
	})
}

// Run must also try a loss at a request between two writes.
func TestALossBeforeARequestIsReported(t *testing.T) {
	failures, _ := found(t, locked(func(t *testing.T, s *Sweep, l *dlock.Lock) error {
		inner, err := s.Client().RWMutex("inner").Lock(t.Context())
		if err != nil {
			return err
		}
		if err := inner.Unlock(); err != nil {
			return err
		}
		return errors.Join(fenced(s, l, "x"), unchecked(s, l, "y"))
	}))
	assert.Contains(t, failures, "expired-before-request-2-create")
	assert.Contains(t, failures["expired-before-request-2-create"], `write 2, "y", was made while no lock was held`)
	assert.NotContains(t, failures, "expired-before-request-1-create")
}

func TestWritesWithoutALockAreReportedEvenWithoutALoss(t *testing.T) {
	for says, work := range map[string]func(t *testing.T, s *Sweep, l *dlock.Lock) error{
		`write 1, "late", was made while no lock was held (`: func(t *testing.T, s *Sweep, l *dlock.Lock) error {
			require.NoError(t, l.Unlock())
			s.Write("late")
			return nil
		},
		`write 1, "late", was made after Unlock (`: func(t *testing.T, s *Sweep, l *dlock.Lock) error {
			token := l.Token()
			require.NoError(t, l.Unlock())
			return s.WriteToken(token, "late")
		},
		`write 1, "x", has token 0, which no lock`: func(t *testing.T, s *Sweep, l *dlock.Lock) error { return s.WriteToken(0, "x") },
		"the function has written nothing":         func(*testing.T, *Sweep, *dlock.Lock) error { return nil },
		"the function fails without a loss: full":  func(*testing.T, *Sweep, *dlock.Lock) error { return errors.New("full") },
	} {
		failures, _ := found(t, locked(work))
		assert.Contains(t, failures["no-loss"], says)
		assert.NotContains(t, failures["no-loss"], "had been lost")
	}
}

func TestAMomentThatDoesNotComeIsReported(t *testing.T) {
	calls := 0
	failures, _ := found(t, func(t *testing.T, s *Sweep) error {
		if calls++; calls > 1 {
			return nil
		}
		return steps(askErr, unchecked)(t, s)
	})
	assert.Contains(t, failures["paused-at-write-1"], "this moment never came")
}

// A fake database may hold its mutex while it calls Write.
func TestWritesOfGoroutinesAndUnderAMutex(t *testing.T) {
	failures, _ := found(t, func(t *testing.T, s *Sweep) error {
		return s.Client().RWMutex("stock").WithLock(t.Context(), func(ctx context.Context, _ *dlock.Lock) error {
			var db sync.Mutex
			var group sync.WaitGroup
			for range 5 {
				group.Go(func() {
					db.Lock()
					defer db.Unlock()
					if ctx.Err() == nil {
						s.Write("row")
					}
				})
			}
			group.Wait()
			return context.Cause(ctx)
		})
	})
	for name := range failures {
		assert.Contains(t, name, "paused-at-write", failures[name])
	}
}

func TestADowngradedHoldEnds(t *testing.T) {
	failures, _ := found(t, locked(func(t *testing.T, s *Sweep, l *dlock.Lock) error {
		s.Write("in time")
		if err := errors.Join(l.Downgrade(t.Context()), l.Unlock()); err != nil {
			return err
		}
		s.Write("late")
		return nil
	}))
	assert.Contains(t, failures["no-loss"], `write 2, "late", was made while no lock was held`)
}
