//go:build linux || darwin

package soak

import (
	"errors"
	"fmt"
	"time"
)

// bump adds one to both counters of a lock: it reads them, works for a while, looks at the lock for the
// last time and writes. The write is on its way for a moment, as over a network.
func (a *actor) bump(name string, h *hold) {
	checked, unchecked := checkedCounter(a.settings.Dir, name), uncheckedCounter(a.settings.Dir, name)
	if _, ok := h.look(); !ok {
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

	if _, ok := h.look(); !ok {
		return
	}
	halted := a.haltHere(name, h)
	time.Sleep(between(a.random, 0, 8*time.Millisecond))

	err = checked.write(count+1, h.lock.Token())
	a.must(unchecked.writeUnchecked(was.Count + 1))
	if halted {
		fmt.Printf("wrote %t\n", err == nil)
	}
	if err != nil {
		a.stale(h, err)
		return
	}
	a.journal.note(event{Kind: bumped, At: now(), Hold: h.id})
}

// haltHere waits between the last look and the write, if it was told to, until the crew has stopped the process, others have written and the
// process goes on. (A process that sends itself the signal goes on for a moment.) Then it looks at the lock, and whatever it sees, it writes.
func (a *actor) haltHere(name string, h *hold) bool {
	order := a.halt.Load()
	if order == nil || *order != name || !a.halt.CompareAndSwap(order, nil) {
		return false
	}
	fmt.Printf("halting %d\n", h.lock.Token())
	<-a.goOn
	h.look()
	return true
}

// readTwice reads the counter that checks, for a while. A writer of old that nobody has refused yet, because
// readers do not raise the token, may change it meanwhile.
func (a *actor) readTwice(name string, h *hold) {
	if _, ok := h.look(); !ok {
		return
	}
	checked := checkedCounter(a.settings.Dir, name)
	first, err := checked.look(h.lock.Token())
	if err != nil {
		a.stale(h, err)
		return
	}
	time.Sleep(between(a.random, 0, 30*time.Millisecond))
	second, err := checked.look(h.lock.Token())
	if err != nil {
		a.stale(h, err)
		return
	}
	if _, ok := h.look(); ok && second != first {
		a.journal.note(event{Kind: uneasy, At: now(), Hold: h.id})
	}
}

// stale notes that the counter has refused a token, and whether that can be explained: whoever still
// holds the lock afterwards should not have been.
func (a *actor) stale(h *hold, err error) {
	if !errors.Is(err, errStale) {
		a.must(err)
		return
	}
	at, ok := h.swear()
	a.journal.note(event{Kind: stale, At: at, Hold: h.id, Held: ok, Told: err.Error()})
}
