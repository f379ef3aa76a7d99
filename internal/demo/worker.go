package demo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// intent is what a worker is going to do: want the lock in that mode, after a break.
type intent struct {
	mode  dlock.Mode
	after time.Duration
}

// worker is a host of its own, as far as the lock can see.
type worker struct {
	name    string
	hold    time.Duration
	plan    []intent
	locker  locker
	counter counter
	log     *journal

	turns     []*turn
	noSession chan error // the last reason, if any
}

// run has a turn for each intent, and stops early if ctx ends or a turn fails.
func (w *worker) run(ctx context.Context) {
	for _, next := range w.plan {
		if !pause(ctx, next.after, nil) {
			return
		}
		t := &turn{worker: w.name, mode: next.mode, asked: w.log.now()}
		w.turns = append(w.turns, t)
		w.take(ctx, t)
		if t.outcome == failed || ctx.Err() != nil {
			return
		}
	}
}

// take gets the lock, holds it and releases it.
func (w *worker) take(ctx context.Context, t *turn) {
	h, err := w.locker.Lock(ctx, t.mode)
	if err != nil {
		w.without(ctx, t, err)
		return
	}
	t.token = h.Token()
	t.granted = w.log.say(t.label(), "holds", fmt.Sprintf("%v, token %d", t.mode, t.token))
	if t.held = w.still(t, h, t.granted); t.held {
		w.use(ctx, t, h)
	}
	if t.outcome != lost {
		at := w.log.say(t.label(), "releases", "")
		w.still(t, h, at)
	}
	w.release(t, h)
}

func (w *worker) release(t *turn, h held) {
	switch err := h.Unlock(); {
	case errors.Is(err, dlock.ErrLost):
		w.lost(t, err)
	case err != nil:
		w.fail(t, err)
	}
}

// still tells whether the lock was held at that time, which is past. Only then does the hold last until there.
func (w *worker) still(t *turn, h held, at time.Duration) bool {
	if err := h.Err(); err != nil {
		w.lost(t, err)
		return false
	}
	t.ended = at
	return true
}

// lost takes note of a loss, once.
func (w *worker) lost(t *turn, err error) {
	if t.outcome != lost {
		t.outcome, t.err = lost, err
		w.log.say(t.label(), "LOST", clean(err.Error()))
	}
}

func (w *worker) fail(t *turn, err error) {
	t.outcome, t.err = failed, err
	w.log.say(t.label(), "ERROR", clean(err.Error()))
}

// without is the end of a turn in which the lock was not won.
func (w *worker) without(ctx context.Context, t *turn, err error) {
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

// trace shows what happens inside of Lock.
func (w *worker) trace() *dlock.Trace {
	w.noSession = make(chan error, 1)
	return &dlock.Trace{
		Connected: w.connected,
		Queued:    func(_ context.Context, i recipes.QueuedInfo) { w.turn().place = i.Place },
		Waiting: func(_ context.Context, i recipes.WaitingInfo) {
			w.log.say(w.turn().label(), "waits", fmt.Sprintf("%s in the queue behind %s", ordinal(i.Position), printable(i.Predecessor)))
		},
		Retrying: func(_ context.Context, i recipes.RetryingInfo) {
			w.log.say(w.turn().label(), "retries", clean(i.Err.Error()))
		},
		SessionEnded: func(_ context.Context, i recipes.SessionEndedInfo) {
			w.log.say(w.name+"  ", "session", "ended: "+clean(i.Err.Error()))
		},
	}
}

// turn returns the turn that is on.
func (w *worker) turn() *turn { return w.turns[len(w.turns)-1] }

// pause waits for that time and returns true, or false as soon as ctx or stop says so.
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
