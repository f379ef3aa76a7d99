package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

const (
	connectLimit = 10 * time.Second
	betweenTries = 50 * time.Millisecond
)

// modes has a letter for each worker: R for a reader, W for a writer. Workers
// beyond the last letter begin again with the first.
const modes = "RRRWWRRRRW"

// worker is one contender, with its own client and host name.
type worker struct {
	*settings
	attempt
	ask func(message) reply
}

func newWorker(s *settings, n int, ask func(message) reply) *worker {
	mode := dlock.Exclusive
	if s.Fault == "" && modes[(n-1)%len(modes)] == 'R' {
		mode = dlock.Shared
	}
	return &worker{s, attempt{Worker: s.worker(n), Number: n, Mode: mode}, ask}
}

func (s *settings) worker(n int) string {
	return fmt.Sprintf("worker-%0*d", len(strconv.Itoa(s.Workers)), n)
}

// tell tells the run what this worker does, or asks it for something.
func (w *worker) tell(do, what string) reply {
	return w.ask(message{Do: do, What: what, Attempt: w.attempt})
}

// options has hooks that print what happens while the worker waits.
func (w *worker) options() []dlock.Option {
	return []dlock.Option{dlock.WithHostname(w.Worker), dlock.WithTrace(&recipes.Trace{
		Queued: func(_ context.Context, i recipes.QueuedInfo) { w.Place = i.Place },
		Waiting: func(_ context.Context, i recipes.WaitingInfo) {
			w.tell("waits", fmt.Sprintf("no. %d in the queue behind %s", i.Position, clean(i.Predecessor)))
		},
		Retrying: func(_ context.Context, i recipes.RetryingInfo) { w.tell("retries", clean(i.Err.Error())) },
	})}
}

func (w *worker) run(ctx context.Context, c *dlock.Client) error {
	err := connect(ctx, c)
	if err == nil && w.tell(askReady, "").OK && pause(ctx, w.after(), nil) {
		err = w.contend(ctx, c.RWMutex(w.Lock))
		w.tell(askEnd, "")
	}
	return cmp.Or(err, c.Close())
}

// after returns a delay that makes the workers ask in the order of their numbers.
func (w *worker) after() time.Duration {
	return time.Duration(w.Number) * min(w.Hold, time.Second) / 13
}

// connect retries an unavailable store, because many workers connect at once.
func connect(ctx context.Context, c *dlock.Client) error {
	for began := time.Now(); ; {
		err := c.Ping(ctx)
		if !errors.Is(err, dlock.ErrUnavailable) || time.Since(began) > connectLimit || !pause(ctx, betweenTries, nil) {
			return err
		}
	}
}

func (w *worker) contend(ctx context.Context, m *dlock.RWMutex) error {
	lock := m.Lock
	if w.Mode == dlock.Shared {
		lock = m.RLock
	}
	w.Asked = w.tell(askTime, "").At
	l, err := lock(ctx)
	if err != nil {
		return w.end(ctx, err)
	}
	w.Token = l.Token()
	w.Granted = w.tell(verbHolds, fmt.Sprintf("%v, token %d", w.Mode, w.Token)).At
	if w.Held = w.holds(l); w.Held {
		w.use(ctx, l)
	}
	if w.Outcome != lost {
		w.tell("releases", "")
		w.holds(l)
	}
	if err := l.Unlock(); err != nil && w.Outcome != lost {
		return w.end(context.Background(), err)
	}
	return nil
}

// end records why an attempt ends early. It returns err if the store has failed.
func (w *worker) end(ctx context.Context, err error) error {
	verb := "ERROR"
	switch w.Outcome = failed; {
	case errors.Is(err, dlock.ErrLost):
		w.Outcome, verb = lost, "LOST"
	case ctx.Err() != nil:
		w.Outcome, verb = served, "leaves"
	}
	at := w.tell(verb, clean(err.Error())).At
	if !w.Held {
		w.Ended = at
	}
	if w.Outcome == failed {
		return err
	}
	return nil
}

// holds reports whether the lock is still held and, if so, records the time.
func (w *worker) holds(l *dlock.Lock) bool {
	at := w.tell(askTime, "").At
	if err := l.Err(); err != nil {
		_ = w.end(context.Background(), err)
		return false
	}
	w.Ended = at
	return true
}

// keep waits for d, and reports whether d has passed with the lock still held.
func (w *worker) keep(ctx context.Context, l *dlock.Lock, d time.Duration) bool {
	done := pause(ctx, d, l.Lost())
	return w.holds(l) && done
}

// use reads the counter and, as a writer, adds to it after a pause, so that two
// simultaneous writers are sure to lose a number.
func (w *worker) use(ctx context.Context, l *dlock.Lock) {
	value := w.tell(askRead, "").Value
	if !w.keep(ctx, l, w.Hold/2) {
		return
	}
	if w.Mode == dlock.Exclusive {
		value += w.Number
		if w.Fault == faultPause && w.Number == 1 {
			// Pause between checking the lock and writing.
			if !w.ask(message{Do: askPause, Value: value, Attempt: w.attempt}).OK {
				return
			}
		}
		w.ask(message{Do: askWrite, Value: value, Attempt: w.attempt})
	}
	if w.Fault == faultCut && w.Number == 1 {
		for w.keep(ctx, l, betweenTries) { // until it notices the loss
		}
		return
	}
	if !w.holds(l) || !w.keep(ctx, l, w.Hold/2) {
		return
	}
	if found := w.tell(askRead, "").Value; w.holds(l) && found != value {
		w.Anomaly = fmt.Sprintf("%s found %d where it should have been %d", w.label(), found, value)
	}
}

func pause(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
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
