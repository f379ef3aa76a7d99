package demo

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock"
)

// incrementsPerHold is how often a writer increments the counter in one hold.
const incrementsPerHold = 10

// use reads the counter, and then makes incrementsPerHold steps. In each step
// it pauses. If the lock is exclusive, it then writes the value that it read
// before the pause, plus one. So it overwrites what another worker has written
// during the pause, and the counter shows that. At the end of the step it reads
// the counter again. use stops early if the lock is lost or ctx has ended.
func (w *worker) use(ctx context.Context, t *attempt, h held) {
	read, ok := w.read(t, h)
	for range incrementsPerHold {
		if !ok {
			return
		}
		finished := pause(ctx, w.hold/incrementsPerHold, h.Lost())
		if !w.stillHeld(t, h, w.log.now()) {
			return
		}
		if !finished {
			t.outcome = interrupted
			return
		}
		if t.mode == dlock.Exclusive {
			if !w.increment(t, read) {
				return
			}
			read++
		}
		read, ok = w.check(t, h, read)
	}
}

// read returns the counter's value if it can be read and the lock is held after
// that. It compares the value with the number of increments: while the lock is
// held, no other worker changes either of them.
func (w *worker) read(t *attempt, h held) (value int64, ok bool) {
	value, err := w.counter.load()
	if err != nil {
		w.fail(t, err)
		return 0, false
	}
	increments, err := w.counter.increments()
	if err != nil {
		w.fail(t, err)
		return 0, false
	}
	if !w.stillHeld(t, h, w.log.now()) {
		return 0, false // the lock is lost, so another worker may have changed the counter
	}
	t.last = reading{value, increments}
	if value != increments {
		t.noteAnomaly("%s found %d after %d increments", t.label(), value, increments)
	}
	return value, true
}

// check is like read. It also records an anomaly if the value is not the one
// that the worker itself has left there, which the parameter want gives.
func (w *worker) check(t *attempt, h held, want int64) (value int64, ok bool) {
	value, ok = w.read(t, h)
	if ok && value != want {
		t.noteAnomaly("%s found %d where it had left %d", t.label(), value, want)
	}
	return value, ok
}

// increment writes one more than the worker has read before its pause.
func (w *worker) increment(t *attempt, read int64) (ok bool) {
	err := w.counter.store(read + 1)
	if err == nil {
		err = w.counter.countIncrement()
	}
	if err != nil {
		w.fail(t, err)
		return false
	}
	t.increments++
	return true
}

// noteAnomaly records the first anomaly of the counter: a value that the
// counter cannot have if the lock excludes. Later anomalies follow from the
// first one and are not recorded.
func (t *attempt) noteAnomaly(format string, args ...any) {
	if t.anomaly == "" {
		t.anomaly = fmt.Sprintf(format, args...)
	}
}
