package demo

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock"
)

// bumps is how often a writer bumps the counter in one hold.
const incrementsPerHold = 10

// use does what the lock was wanted for: it reads the counter, dawdles, and, if the lock is exclusive, writes one
// more than it has read, whatever others have written since. It does so ten times, but stops when the lock is lost or ctx has ended.
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

// read returns the counter's value if it can be read and the lock is held. It compares the
// value with the tally: while the lock is held nobody changes either.
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
		return 0, false // so others may have been at it
	}
	t.last = reading{value, increments}
	if value != increments {
		t.noteAnomaly("%s found %d after %d bumps", t.label(), value, increments)
	}
	return value, true
}

// check is read for somebody who knows what the value has to be.
func (w *worker) check(t *attempt, h held, want int64) (value int64, ok bool) {
	value, ok = w.read(t, h)
	if ok && value != want {
		t.noteAnomaly("%s found %d where it had left %d", t.label(), value, want)
	}
	return value, ok
}

// increment writes one more than was read a while ago.
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

// noteAnomaly keeps the first thing about the counter that cannot be under a lock; what follows is a
// consequence of it.
func (t *attempt) noteAnomaly(format string, args ...any) {
	if t.anomaly == "" {
		t.anomaly = fmt.Sprintf(format, args...)
	}
}
