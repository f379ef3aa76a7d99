//go:build linux || darwin

package soak

import (
	"errors"
	"fmt"
	"time"
)

// increment adds one to both counters of a lock. Between the last check of the
// lock and the write it waits a moment, as if the write went over a network.
func (a *actor) increment(name string, h *hold) {
	checked, unchecked := checkedCounter(a.settings.Dir, name), uncheckedCounter(a.settings.Dir, name)
	if _, ok := h.check(); !ok {
		return
	}
	count, err := checked.begin(h.lock.Token())
	if err != nil {
		a.stale(h, err)
		return
	}
	was, err := unchecked.read()
	a.must(err)
	time.Sleep(between(a.random, 0, 30*time.Millisecond))

	if _, ok := h.check(); !ok {
		return
	}
	stoppedHere := a.waitForStop(name, h)
	time.Sleep(between(a.random, 0, 8*time.Millisecond))

	err = checked.write(count+1, h.lock.Token())
	a.must(unchecked.writeUnchecked(was.Count + 1))
	if stoppedHere {
		fmt.Printf("wrote %t\n", err == nil)
	}
	if err != nil {
		a.stale(h, err)
		return
	}
	a.journal.note(event{Kind: incremented, At: now(), Hold: h.id})
}

// waitForStop waits between the last check and the write if the test has asked
// for it. Meanwhile the test stops the process until another worker has
// written. (The process cannot stop itself, because it would run on for a
// moment after the signal.) Once resumed, waitForStop checks the lock, and the
// caller writes whatever the outcome.
func (a *actor) waitForStop(name string, h *hold) bool {
	order := a.halt.Load()
	if order == nil || *order != name || !a.halt.CompareAndSwap(order, nil) {
		return false
	}
	fmt.Printf("halting %d\n", h.lock.Token())
	<-a.goOn
	h.check()
	return true
}

// readTwice reads the checked counter twice with a pause. A writer that has
// lost the lock may still change the counter in between, because a reader's
// token does not raise the counter's token.
func (a *actor) readTwice(name string, h *hold) {
	if _, ok := h.check(); !ok {
		return
	}
	checked := checkedCounter(a.settings.Dir, name)
	first, err := checked.readAs(h.lock.Token())
	if err != nil {
		a.stale(h, err)
		return
	}
	time.Sleep(between(a.random, 0, 30*time.Millisecond))
	second, err := checked.readAs(h.lock.Token())
	if err != nil {
		a.stale(h, err)
		return
	}
	if _, ok := h.check(); ok && second != first {
		a.journal.note(event{Kind: changedUnderReader, At: now(), Hold: h.id})
	}
}

// stale notes that the counter has refused a token, and whether the lock was
// still held after that, which would be a fault.
func (a *actor) stale(h *hold, err error) {
	if !errors.Is(err, errStale) {
		a.must(err)
		return
	}
	at, ok := h.confirm()
	a.journal.note(event{Kind: stale, At: at, Hold: h.id, Held: ok, Text: err.Error()})
}
