package demo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/dlock-go/dlock"
)

// intent is one step of a worker's plan: the worker pauses for the time after,
// and then takes the lock in that mode.
type intent struct {
	mode  dlock.Mode
	after time.Duration

	await   func(ctx context.Context) // if not nil, it is called before the pause
	holding func(t *attempt)          // if not nil, it is called at the end of a hold, before the release
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

	attempt   *attempt   // the attempt in progress, or the last one
	noSession chan error // the error of the last attempt to connect, if it failed
}

// run makes an attempt for each step of the plan. It stops early if ctx ends or an
// attempt fails.
func (w *worker) run(ctx context.Context) {
	for _, next := range w.plan {
		if next.await != nil {
			next.await(ctx)
		}
		if !pause(ctx, next.after, nil) {
			return
		}
		t := &attempt{worker: w.name, mode: next.mode, asked: w.log.now()}
		w.attempt = t
		w.take(ctx, t, next.holding)
		w.log.finished(t)
		if t.outcome == failed || ctx.Err() != nil {
			return
		}
	}
}

// take gets the lock, uses it and gives it back. If the worker has used the lock to
// the end, take calls holding before it gives the lock back.
func (w *worker) take(ctx context.Context, t *attempt, holding func(*attempt)) {
	h, err := w.locker.Lock(ctx, t.mode)
	if err != nil {
		w.notGranted(ctx, t, err)
		return
	}
	t.token = h.Token()
	t.granted = w.log.say(t.label(), "holds", fmt.Sprintf("%v, token %d", t.mode, t.token))
	if t.held = w.stillHeld(t, h, t.granted); t.held {
		w.use(ctx, t, h)
	}
	if holding != nil && t.held && t.outcome == served {
		holding(t)
	}
	if t.outcome != lost {
		at := w.log.say(t.label(), "releases", "")
		w.stillHeld(t, h, at)
	}
	w.release(t, h)
}

func (w *worker) release(t *attempt, h held) {
	switch err := h.Unlock(); {
	case errors.Is(err, dlock.ErrLost):
		w.lost(t, err)
	case err != nil:
		w.fail(t, err)
	}
}

// stillHeld reports whether the lock is still held. If so, it records that the
// hold lasts at least until the time that the parameter at gives, which must be
// past. Otherwise it records the loss.
func (w *worker) stillHeld(t *attempt, h held, at time.Duration) bool {
	if err := h.Err(); err != nil {
		w.lost(t, err)
		return false
	}
	t.ended = at
	return true
}

// lost records that the lock of the attempt is lost, and prints that. Further
// calls for the same attempt have no effect.
func (w *worker) lost(t *attempt, err error) {
	if t.outcome != lost {
		t.outcome, t.err = lost, err
		w.log.say(t.label(), "LOST", clean(err.Error()))
	}
}

func (w *worker) fail(t *attempt, err error) {
	t.outcome, t.err = failed, err
	w.log.say(t.label(), "ERROR", clean(err.Error()))
}

// notGranted records why the lock was not granted in an attempt, and prints
// that.
func (w *worker) notGranted(ctx context.Context, t *attempt, err error) {
	t.err = err
	verb := "ERROR"
	switch {
	case ctx.Err() != nil:
		t.outcome, verb = interrupted, "leaves"
	case errors.Is(err, dlock.ErrTimeout):
		t.outcome, verb = timedOut, "gives up"
	default:
		t.outcome = failed
	}
	t.ended = w.log.say(t.label(), verb, clean(err.Error()))
}

// trace returns hooks that print what happens inside of Lock.
func (w *worker) trace() *dlock.Trace {
	w.noSession = make(chan error, 1)
	return &dlock.Trace{
		Connected: w.connected,
		Queued:    func(_ context.Context, i dlock.QueuedInfo) { w.attempt.place = i.Place },
		Waiting: func(_ context.Context, i dlock.WaitingInfo) {
			w.log.say(w.attempt.label(), "waits", fmt.Sprintf("%s in the queue behind %s", ordinal(i.Position), printable(i.Predecessor)))
		},
		Retrying: func(_ context.Context, i dlock.RetryingInfo) {
			w.log.say(w.attempt.label(), "retries", clean(i.Err.Error()))
		},
		SessionEnded: func(_ context.Context, i dlock.SessionEndedInfo) {
			w.log.say(w.name+"  ", "session", "ended: "+clean(i.Err.Error()))
		},
	}
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
