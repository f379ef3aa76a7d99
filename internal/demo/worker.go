package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

const betweenTries = 50 * time.Millisecond

// longestPause limits the random pauses before attempts. Without them, all
// workers would ask for the lock at once.
const longestPause = 100 * time.Millisecond

// intent is an attempt that a worker will make.
type intent struct {
	mode    dlock.Mode
	after   time.Duration
	await   <-chan struct{}  // closed when the attempt may begin; nil if it may begin at once
	holding func(t *attempt) // if not nil, called before the release
}

// worker is one contender of the demo, with its own client and host name.
type worker struct {
	name    string
	hold    time.Duration
	plan    []intent
	locker  locker
	counter counter
	work    func(ctx context.Context, t *attempt, h held) // what the worker does while it holds the lock
	log     reporter
	attempt *attempt // the current or last attempt
}

type workers []*worker

// runWorkers runs the workers of this process until all have made their planned
// attempts. Then the first worker makes the attempts in last. An error means
// that the workers could not begin.
func runWorkers(ctx context.Context, s *settings, open opener, count counter, log reporter, last ...intent) error {
	all, err := newWorkers(s, open, count, log)
	defer all.close()
	if err != nil {
		return err
	}
	if err := all.connect(ctx, s.ConnectTimeout); err != nil {
		return err
	}
	if log.begin(ctx) {
		_ = all.each(func(w *worker) error { w.run(ctx, w.plan); return nil })
		all[0].run(ctx, last)
	}
	return nil
}

// newWorkers returns workers with random plans. After an error it returns those
// created so far, for the caller to close. It does no I/O.
func newWorkers(s *settings, open opener, count counter, log reporter) (all workers, err error) {
	random := rand.New(rand.NewPCG(s.Seed, s.Seed))
	digits := max(2, len(strconv.Itoa(s.Workers)))
	for i := range s.Workers {
		w := &worker{name: fmt.Sprintf("%s-%0*d", s.Host, digits, i+1), hold: s.Hold, counter: count, log: log}
		w.work = w.use
		for range s.Rounds {
			mode := dlock.Exclusive
			if random.Float64() < s.SharedRatio {
				mode = dlock.Shared
			}
			pause := time.Duration(random.Float64() * float64(min(s.Hold, longestPause)))
			w.plan = append(w.plan, intent{mode: mode, after: pause})
		}
		if w.locker, err = open(w.name, w.trace()); err != nil {
			return all, err
		}
		all = append(all, w)
	}
	return all, nil
}

// connect waits until every worker has a session. The first worker connects
// alone, so that only one client tries a store that is down.
func (all workers) connect(ctx context.Context, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := all[0].connect(limited)
	if err == nil {
		err = all[1:].each(func(w *worker) error { return w.connect(limited) })
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errInterrupted
	case limited.Err() != nil:
		return fmt.Errorf("no session within %v: %w", limit, err)
	}
	return err
}

// connect retries while the store is unavailable, because many workers connect
// at once.
func (w *worker) connect(ctx context.Context) error {
	var last error
	for {
		err := w.locker.Ping(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && last != nil:
			return last // last tells more than the error of ctx
		case !errors.Is(err, dlock.ErrUnavailable) || !pause(ctx, betweenTries, nil):
			return err
		}
		last = err
	}
}

func (all workers) close() {
	for _, w := range all {
		if err := w.locker.Close(); err != nil {
			now := w.log.now()
			w.log.finished(&attempt{Worker: w.name, Asked: now, Ended: now, Outcome: failed, Err: err.Error()})
		}
	}
}

// each calls f for all workers concurrently and returns the first error, if
// any.
func (all workers) each(f func(*worker) error) error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, w := range all {
		group.Go(func() { errs[i] = f(w) })
	}
	group.Wait()
	return cmp.Or(errs...)
}

// run makes the planned attempts one after another, until ctx ends or an
// attempt fails.
func (w *worker) run(ctx context.Context, plan []intent) {
	for _, next := range plan {
		if next.await != nil {
			select {
			case <-next.await:
			case <-ctx.Done():
			}
		}
		if !pause(ctx, next.after, nil) {
			return
		}
		t := &attempt{Worker: w.name, Mode: next.mode, Asked: w.log.now()}
		w.attempt = t
		w.take(ctx, t, next.holding)
		w.log.finished(t)
		if t.Outcome == failed || ctx.Err() != nil {
			return
		}
	}
}

func (w *worker) take(ctx context.Context, t *attempt, holding func(*attempt)) {
	h, err := w.locker.Lock(ctx, t.Mode)
	if err != nil {
		why := failed
		if ctx.Err() != nil {
			why = interrupted
		} else if errors.Is(err, dlock.ErrTimeout) {
			why = timedOut
		}
		t.Ended = w.stop(t, why, err)
		return
	}
	t.Token = h.Token()
	t.Granted = w.log.say(t.label(), "holds", fmt.Sprintf("%v, token %d", t.Mode, t.Token))
	if t.Held = w.stillHeld(t, h, t.Granted); t.Held {
		w.work(ctx, t, h)
	}
	if holding != nil && t.Held && t.Outcome == served {
		holding(t)
	}
	if t.Outcome != lost {
		w.stillHeld(t, h, w.log.say(t.label(), "releases", ""))
	}
	if err := h.Unlock(); errors.Is(err, dlock.ErrLost) {
		w.stop(t, lost, err)
	} else if err != nil {
		w.stop(t, failed, err)
	}
}

// stillHeld reports whether the lock is still held. If so, it records that the
// lock was held until at, a time in the past.
func (w *worker) stillHeld(t *attempt, h held, at time.Duration) bool {
	if err := h.Err(); err != nil {
		w.stop(t, lost, err)
		return false
	}
	t.Ended = at
	return true
}

// stop records why an attempt ends early and returns the time of its end. After
// a loss it is a no-op.
func (w *worker) stop(t *attempt, why outcome, err error) time.Duration {
	if t.Outcome == lost {
		return t.Ended
	}
	t.Outcome, t.Err = why, err.Error()
	verb := map[outcome]string{lost: "LOST", interrupted: "leaves", timedOut: "gives up", failed: "ERROR"}[why]
	return w.log.say(t.label(), verb, clean(t.Err))
}

// trace returns callbacks that print what happens while the worker waits for
// the lock.
func (w *worker) trace() *recipes.Trace {
	return &recipes.Trace{
		Queued: func(_ context.Context, i recipes.QueuedInfo) { w.attempt.Place = i.Place },
		Waiting: func(_ context.Context, i recipes.WaitingInfo) {
			w.log.say(w.attempt.label(), "waits", fmt.Sprintf("no. %d in the queue behind %s", i.Position, clean(i.Predecessor)))
		},
		Retrying: func(_ context.Context, i recipes.RetryingInfo) {
			w.log.say(w.attempt.label(), "retries", clean(i.Err.Error()))
		},
		SessionEnded: func(_ context.Context, i recipes.SessionEndedInfo) {
			if !errors.Is(i.Err, dlock.ErrClosed) {
				w.log.say(w.name+"  ", "session", "ended: "+clean(i.Err.Error()))
			}
		},
	}
}

// pause waits for d. It returns false if ctx ends or stop is closed first.
func pause(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	if d <= 0 {
		runtime.Gosched()
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}
