package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/lastrun"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

const (
	// maxAhead is how far a tick may be ahead of the store's clock.
	maxAhead = time.Minute
	// maxSlack is how early a call of OncePer may come: one minute for
	// differing clocks, and one for inexact schedulers.
	maxSlack = 2 * time.Minute
)

// lookAgainFor limits how long a call asks the store whether its run was
// recorded, after the request to record it has failed.
const lookAgainFor = 5 * time.Second

// Once takes the lock exclusively and calls f, unless f has already been run
// successfully by Once for this tick or a later one. The tick is the time for
// which the run is planned, such as time.Now().Truncate(time.Hour). All
// machines must pass the same tick, but their clocks need not agree.
//
// One machine runs f, and the others wait. If f succeeds, they return with ran
// false. If f fails, or its machine dies or loses the lock, the next one runs
// f.
//
// No two runs overlap, unless a lock is lost. For that case, use the context
// and the token within f as with [RWMutex.WithLock]. The function must also
// cope with an earlier run that ended halfway.
//
// After f has returned nil, Once stores the tick and the node's name as the
// value of the lock, as [Lock.SetValue] does, even if ctx has ended by then. Do
// not store other values for this lock.
//
// If the result ran is false and err is nil, the tick has been done. Otherwise
// the errors are those of WithLock, and these:
//
//	ErrNotRun   f was not called: Lock failed, the driver stores no values
//	            (errors.ErrUnsupported), the lock has a value of another kind,
//	            or the tick is more than a minute ahead of the store's clock.
//	            If the store's clock was ahead during the last run and was set
//	            back since, calls fail until it has caught up. With stores
//	            that do not report their time, such as etcd, neither is checked.
//	ErrNotRecorded
//	            f has returned nil, but the store has not confirmed the tick,
//	            even when asked again for up to 5 s. Another call for the same
//	            tick may run f again.
//
// On top of the lock, a run costs two requests, and a call that does not run f
// costs one.
func (m *RWMutex) Once(ctx context.Context, tick time.Time, f func(ctx context.Context, l *Lock) error) (ran bool, err error) {
	return m.once(ctx, f, func(last, now, _ time.Time) (time.Time, bool, error) {
		switch {
		case tick.IsZero():
			return tick, false, errors.New("the tick is the zero time")
		case !last.Before(tick):
			return tick, false, nil
		case !now.IsZero() && tick.Sub(now) > maxAhead:
			return tick, false, fmt.Errorf("the tick %s is %v ahead of the store's clock, and %v is the limit: see the clock of this machine",
				tick.UTC().Format(time.RFC3339), tick.Sub(now).Round(time.Second), maxAhead)
		}
		return tick, true, nil
	})
}

// OncePer is like Once for jobs without planned times: it calls f unless a
// successful run has begun less than a period ago, by the store's clock. This
// fits schedulers such as cron that start the same job on many machines at
// about the same time. The period must be shorter than the shortest time
// between two planned starts: 20 hours for a daily job, because the day on
// which daylight saving time begins has 23.
//
// A call may come early by two minutes or a quarter of the period, whichever is
// less, so that machines whose clocks differ may take turns. An early run is
// recorded as if it had begun on time.
//
// Any other run is recorded with the time of its call of OncePer, or with a
// later time if the call has waited long. So two runs begin at least half a
// period apart, and there are at most n+1 runs in n periods.
//
// With stores that do not report their time, such as etcd, OncePer uses this
// machine's clock. The clocks of two machines must then not differ by more than
// a call may come early.
func (m *RWMutex) OncePer(ctx context.Context, period time.Duration, f func(ctx context.Context, l *Lock) error) (ran bool, err error) {
	began := time.Now()
	slack := min(maxSlack, period/4)
	return m.once(ctx, f, func(last, called, starts time.Time) (time.Time, bool, error) {
		if called.IsZero() {
			called, starts = began, time.Now()
		}
		due, run := last.Add(period), called
		switch {
		case period <= 0:
			return run, false, fmt.Errorf("the period %v is not positive", period)
		case last.IsZero(), called.Sub(due) > slack:
		case due.Sub(called) > slack:
			return run, false, nil
		default:
			run = due
		}
		if earliest := starts.Add(slack - period/2); earliest.After(run) {
			run = earliest
		}
		return run, true, nil
	})
}

// plan decides whether the job is due, and which time to record. The times
// called and starts are by the store's clock, or zero.
type plan func(last, called, starts time.Time) (run time.Time, due bool, err error)

func (m *RWMutex) once(ctx context.Context, f func(ctx context.Context, l *Lock) error, plan plan) (ran bool, err error) {
	if f == nil {
		return false, m.WithLock(ctx, nil)
	}
	began := time.Now()
	err = m.WithLock(ctx, func(held context.Context, l *Lock) error {
		run, due, err := l.planned(held, began, plan)
		if err != nil || !due {
			return err
		}
		ran = true
		if err := f(held, l); err != nil {
			return mask(err, ErrNotRecorded) // an ErrNotRecorded of f is about another lock
		}
		return m.recordRun(context.WithoutCancel(ctx), l, run)
	})
	if !ran && err != nil && !errors.Is(err, ErrNotRun) {
		err = bothError{err, ErrNotRun}
	}
	return ran, err
}

func (l *Lock) planned(ctx context.Context, began time.Time, plan plan) (run time.Time, due bool, err error) {
	h := l.hold
	value, err := h.entry.Value(ctx)
	var last time.Time
	if err == nil {
		var run lastrun.Run
		run, err = lastrun.Parse(value)
		last = run.Succeeded
	}
	now := h.entry.StoreTime(time.Now())
	if ahead := last.Sub(now); err == nil && !now.IsZero() && ahead > maxAhead+maxSlack {
		err = fmt.Errorf("the last run, of %s, is %v ahead of the store's clock: if that clock is right now, remove the value beside the lock",
			value, ahead.Round(time.Second))
	}
	if err == nil {
		run, due, err = plan(last, h.entry.StoreTime(began), now)
	}
	if err != nil {
		return run, false, lockError(h.queue.name, h.queue.client.requestError(ctx, err))
	}
	return run, due, nil
}

// recordRun records the time of a run. If the lock was lost, the error omits
// the loss, because the caller gets that from Unlock, too.
func (m *RWMutex) recordRun(ctx context.Context, l *Lock, at time.Time) error {
	value := []byte(lastrun.Run{Succeeded: at, Node: l.Node()}.String())
	err := l.setValue(ctx, value)
	switch {
	case err == nil, m.keeps(ctx, value):
		return nil
	case l.Err() != nil:
		return lockError(m.queue.name, ErrNotRecorded)
	}
	return lockError(m.queue.name, fmt.Errorf("%w: %w", ErrNotRecorded, err))
}

// keeps reports whether the store confirms that it has the value.
func (m *RWMutex) keeps(ctx context.Context, value []byte) bool {
	ctx, cancel := context.WithTimeout(ctx, lookAgainFor)
	defer cancel()
	retries := entry.Retries{New: m.queue.options.backOff}
	for {
		kept, _, err := m.Value(ctx)
		if !errors.Is(err, driver.ErrUnavailable) {
			return err == nil && bytes.Equal(kept, value)
		}
		if pause := retries.Next(); pause < 0 || !entry.Sleep(pause, ctx.Done()) {
			return false
		}
	}
}
