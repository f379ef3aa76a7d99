//go:build linux || darwin

package soak

import (
	"errors"
	"fmt"
	"time"
)

// increment adds one to both counters of a lock. It reads them, works for a
// while, checks the lock for the last time and writes. Between the last check
// and the write it waits a moment, as if the write went over a network.
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

// waitForStop waits between the last check and the write, if the test has asked
// for that. While waitForStop waits, the test stops the process, until another
// worker has written. (The process does not stop itself, because it would go on
// for a moment after the signal.) When the process goes on, waitForStop checks
// the lock once more, and the caller writes whatever the check says.
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

// readTwice reads the checked counter twice, with some time between. A writer
// that has lost the lock may still change the counter meanwhile, because the
// token of a reader does not raise the counter's token.
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

// stale records that the counter has refused the token of a lock, and whether
// the lock was still held after the refusal. The counter may refuse the token
// only if the lock is lost.
func (a *actor) stale(h *hold, err error) {
	if !errors.Is(err, errStale) {
		a.must(err)
		return
	}
	at, ok := h.confirm()
	a.journal.note(event{Kind: stale, At: at, Hold: h.id, Held: ok, Text: err.Error()})
}
