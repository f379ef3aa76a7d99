package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// betweenTries is the pause between two attempts to connect.
const betweenTries = 50 * time.Millisecond

// longestPause limits the pauses of a worker, so that a run with long holds
// spends its time on holds.
const longestPause = 100 * time.Millisecond

// intent is one step of a worker's plan: a pause, and then the lock.
type intent struct {
	mode    dlock.Mode
	after   time.Duration
	await   <-chan struct{}  // if not nil, the step begins when it is closed
	holding func(t *attempt) // if not nil, it is called at the end of a hold, before the release
}

// worker takes the lock. It has a client and a host name of its own, as if it
// were another host.
type worker struct {
	name    string
	hold    time.Duration
	plan    []intent
	locker  locker
	counter counter
	log     reporter
	attempt *attempt // in progress, or the last one
}

// workers are all workers of a process.
type workers []*worker

// runWorkers runs the workers of this process, and last, which is a step of the
// first worker after all plans have ended. It returns why the workers could not
// begin, and the errors of closing their clients.
func runWorkers(ctx context.Context, s *settings, open opener, count counter, log reporter, last ...intent) (closing []error, err error) {
	all, err := newWorkers(s, open, count, log)
	if err != nil {
		return nil, err
	}
	if err := all.connect(ctx, s.connectTimeout); err != nil {
		all.close()
		return nil, err
	}
	if log.begin(ctx) {
		_ = all.each(func(w *worker) error { w.run(ctx, w.plan); return nil })
		all[0].run(ctx, last)
	}
	return all.close(), nil
}

// newWorkers returns workers with random plans. It does no I/O. The pauses of the
// plans keep the workers from arriving all at once.
func newWorkers(s *settings, open opener, count counter, log reporter) (all workers, err error) {
	random := rand.New(rand.NewPCG(s.seed, s.seed))
	digits := max(2, len(strconv.Itoa(s.workers)))
	for i := range s.workers {
		w := &worker{name: fmt.Sprintf("%s-%0*d", s.host, digits, i+1), hold: s.hold, counter: count, log: log}
		for range s.rounds {
			mode := dlock.Exclusive
			if random.Float64() < s.sharedRatio {
				mode = dlock.Shared
			}
			pause := time.Duration(random.Float64() * float64(min(s.hold, longestPause)))
			w.plan = append(w.plan, intent{mode: mode, after: pause})
		}
		if w.locker, err = open(w.name, w.trace()); err != nil {
			all.close()
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// connect returns nil once every worker has a session. The first worker connects
// before the others, so that only one client asks a store that is not there.
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

// connect tries again as long as the error may pass, because a server may be busy
// when many workers connect at once.
func (w *worker) connect(ctx context.Context) error {
	var last error
	for {
		err := w.locker.Ping(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && last != nil:
			return last // says more than the end of ctx
		case !errors.Is(err, dlock.ErrUnavailable) || !pause(ctx, betweenTries, nil):
			return err
		}
		last = err
	}
}

// close returns the errors of the clients that were not closed.
func (all workers) close() (errs []error) {
	for _, w := range all {
		if err := w.locker.Close(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", w.name, err))
		}
	}
	return errs
}

// each calls f for all workers at the same time. It returns the error of the first
// worker that has one.
func (all workers) each(f func(*worker) error) error {
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, w := range all {
		group.Go(func() { errs[i] = f(w) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// run makes an attempt for each step. It stops early if ctx ends or an attempt
// fails.
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

// take gets the lock, uses it and gives it back.
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
		w.use(ctx, t, h)
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

// stillHeld records that the hold lasts at least until the time at, which must be
// past, or that the lock is lost.
func (w *worker) stillHeld(t *attempt, h held, at time.Duration) bool {
	if err := h.Err(); err != nil {
		w.stop(t, lost, err)
		return false
	}
	t.Ended = at
	return true
}

// stop records and prints why the attempt ends early, and returns the time. For an
// attempt that has lost its lock it is a no-op.
func (w *worker) stop(t *attempt, why outcome, err error) time.Duration {
	if t.Outcome == lost {
		return t.Ended
	}
	t.Outcome, t.Err = why, err.Error()
	verb := map[outcome]string{lost: "LOST", interrupted: "leaves", timedOut: "gives up", failed: "ERROR"}[why]
	return w.log.say(t.label(), verb, clean(t.Err))
}

// trace returns hooks that print what happens inside of Lock.
func (w *worker) trace() *dlock.Trace {
	return &dlock.Trace{
		Queued: func(_ context.Context, i dlock.QueuedInfo) { w.attempt.Place = i.Place },
		Waiting: func(_ context.Context, i dlock.WaitingInfo) {
			w.log.say(w.attempt.label(), "waits", fmt.Sprintf("%s in the queue behind %s", ordinal(i.Position), clean(i.Predecessor)))
		},
		Retrying: func(_ context.Context, i dlock.RetryingInfo) {
			w.log.say(w.attempt.label(), "retries", clean(i.Err.Error()))
		},
		SessionEnded: func(_ context.Context, i dlock.SessionEndedInfo) {
			w.log.say(w.name+"  ", "session", "ended: "+clean(i.Err.Error()))
		},
	}
}

// ordinal returns 1st, 2nd, 3rd, 4th and so on.
func ordinal(n int) string {
	suffix := "th"
	if n%10 >= 1 && n%10 <= 3 && n/10%10 != 1 {
		suffix = []string{"st", "nd", "rd"}[n%10-1]
	}
	return strconv.Itoa(n) + suffix
}

// pause waits for the time d and returns true. If ctx ends or stop closes first, it
// returns false at once.
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
