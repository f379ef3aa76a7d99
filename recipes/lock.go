package recipes

import (
	"errors"
	"fmt"
)

// Lock is a lock that is held until Unlock, or until it is lost. A call that
// takes the lock again by re-entry returns a Lock of its own. The node in the
// store is removed by the last Unlock.
//
// A Lock comes from a call of an RWMutex that returned no error. The zero value
// and nil come from no call. They behave like a Lock that was unlocked: errors
// match [ErrNotHeld], and the other results are zero. A Lock is safe for use by
// many goroutines.
//
// A copy of a Lock is the same lock: if one of the two is unlocked, both are.
// Pass a pointer all the same, because go vet reports copies.
type Lock struct {
	_ noCopy
	*lockState
}

// noCopy makes go vet report copies of the struct that it is in.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// lockState is what a Lock and its copies have in common.
type lockState struct {
	hold *hold

	// Guarded by hold.mu:
	exclusive bool
	unlocked  bool
	end       error                // what a second Unlock returns
	lost      chan struct{}        // what Lost returns; made by the first call of Lost
	contexts  map[any]*lockContext // the contexts to cancel when this Lock ends; the key is contextKey(parent)
}

// errNoLock is the error of a Lock that is the zero value or nil.
var errNoLock = fmt.Errorf("dlock: this Lock comes from no call of RWMutex (look at the call's error first): %w", ErrNotHeld)

func (l *Lock) fromNoCall() bool { return l == nil || l.lockState == nil }

// Mode returns [Shared] or [Exclusive]: how the lock is held at this moment.
func (l *Lock) Mode() Mode {
	if l.fromNoCall() {
		return 0
	}
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.mode()
}

// mode does what Mode does. It is called with mu held.
func (l *Lock) mode() Mode {
	if l.exclusive {
		return Exclusive
	}
	return Shared
}

// Node returns the present name of the lock's node, such as
// "web1-W-0000000007". A downgrade changes it.
func (l *Lock) Node() string {
	if l.fromNoCall() {
		return ""
	}
	return l.hold.entry.Place().Name
}

// Token returns the fencing token. Send it to the resource that the lock
// protects, and let the resource refuse a token that is smaller than the
// greatest one that it has seen. Nothing else keeps out a holder that has lost
// the lock and does not know it yet.
//
// The token of an exclusive lock is greater than that of every earlier
// exclusive lock of this name, within one history of one store. After a change to
// another store, or to one that was restored or set up anew, tokens may be
// smaller, and the resource would refuse them: docs/use/guarantees.md says what to do.
// The token of a shared lock is
// compared with the greatest exclusive token and never raises it, because
// readers hold the lock together. A re-entry has the token of the lock that it
// takes again.
func (l *Lock) Token() int64 {
	if l.fromNoCall() {
		return 0
	}
	return l.hold.entry.Place().Token
}

// Lost returns a channel that closes when the lock is lost: its session has
// ended, or an operator or another client removed its node. It never closes
// after Unlock.
//
// A session counts as ended before the store grants the lock to another
// session. But a request that was sent to a resource before the loss may reach
// the resource after it: see Token.
func (l *Lock) Lost() <-chan struct{} {
	if l.fromNoCall() {
		return nil
	}
	h := l.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if h.lost != nil && !l.unlocked {
			close(l.lost)
		}
	}
	return l.lost
}

// Err returns nil while the lock is held, which means that its lease runs and
// that no loss was noticed. Err reads the clocks. So a process that was paused
// learns of a loss from Err even before Lost has closed. But in a virtual machine
// that was paused the clocks may have stood still: only the token helps then.
//
// After a loss the error matches [ErrLost], after Unlock [ErrNotHeld], and
// after an Unlock that came after a loss both.
func (l *Lock) Err() error {
	if l.fromNoCall() {
		return errNoLock
	}
	l.hold.check()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if l.unlocked {
		return l.notHeld()
	}
	return l.hold.lost
}

// notHeld is called with mu held.
func (l *Lock) notHeld() error {
	if l.end == l.hold.queue.notHeld {
		return l.end
	}
	return bothError{l.hold.queue.notHeld, l.end}
}

// bothError has the text of its first error, and matches both.
type bothError struct {
	error
	also error
}

func (e bothError) Unwrap() []error { return []error{e.error, e.also} }

// noteEnd sets what a second Unlock returns.
func (l *Lock) noteEnd(err error) {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	l.end = err
}

// String returns one line for people: the lock's name, its mode, its node, its
// token, and whether it is held, unlocked or lost. It may be called at any
// time.
func (l *Lock) String() string {
	if l.fromNoCall() {
		return "no lock"
	}
	h := l.hold
	ended := h.entry.SessionOver()
	place := h.entry.Place()
	h.mu.Lock()
	defer h.mu.Unlock()
	state := "held"
	switch {
	case l.unlocked && !errors.Is(l.end, ErrLost):
		state = "unlocked"
	case l.unlocked, h.lost != nil, ended:
		state = "lost"
	}
	return fmt.Sprintf("%s: %v, %s, token %d, %s", printable(h.queue.name), l.mode(), printable(place.Name), place.Token, state)
}

// GoString returns "dlock.Lock(...)" with the result of String in the brackets.
func (l *Lock) GoString() string { return "dlock.Lock(" + l.String() + ")" }
