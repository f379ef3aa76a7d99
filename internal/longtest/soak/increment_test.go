//go:build linux || darwin

package soak

import (
	"errors"
	"fmt"
	"time"
)

// increment adds one to both counters of a lock. It pauses before the write, as
// if the write went over a network.
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

// waitForStop blocks before a write if the test has asked for it, so that the
// test can stop the process at this point. (A process that sent SIGSTOP to
// itself would run on for a moment.) The caller writes even if the lock was
// lost meanwhile.
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

// readTwice reads the counter twice to see whether anybody writes in between. A
// writer that has lost the lock may do so without breaking a rule, because the
// counter does not store a reader's token.
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

// stale records that the counter has refused a token. If the lock was still
// held after the refusal, the refusal was wrong.
func (a *actor) stale(h *hold, err error) {
	if !errors.Is(err, errStale) {
		a.must(err)
		return
	}
	at, ok := h.confirm()
	a.journal.note(event{Kind: stale, At: at, Hold: h.id, Held: ok, Text: err.Error()})
}
