package recipes

import (
	"errors"
	"fmt"
)

// Lock is a granted lock. It is held until Unlock, or until it is lost. A
// re-entry returns a Lock of its own, and the last Unlock removes the node from
// the store.
//
// Locks come from RWMutex, Semaphore, Election and [Locks.All]. The zero value
// and nil behave like an unlocked Lock: errors match [ErrNotHeld], and other
// results are zero. A Lock is safe for concurrent use.
//
// A copy of a Lock is the same lock, but go vet reports copies.
type Lock struct {
	_ noCopy
	*lockState
}

// noCopy makes go vet report copies of the struct that embeds it.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// lockState is the state that a Lock shares with its copies.
type lockState struct {
	hold *hold

	// Guarded by hold.mu:
	exclusive bool
	unlocked  bool
	unlockErr error                // what later calls of Unlock return
	lost      chan struct{}        // returned by Lost; created on first use
	contexts  map[any]*lockContext // by mapKey(parent); cancelled when this Lock ends
}

var errNoLock = fmt.Errorf("dlock: this Lock comes from no call of RWMutex (look at the call's error first): %w", ErrNotHeld)

func (l *Lock) fromNoCall() bool { return l == nil || l.lockState == nil }

// Mode reports how the lock is held now: [Shared] or [Exclusive].
func (l *Lock) Mode() Mode {
	if l.fromNoCall() {
		return 0
	}
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.mode()
}

func (l *lockState) mode() Mode {
	if l.exclusive {
		return Exclusive
	}
	return Shared
}

// Node returns the current name of the lock's node, such as
// "web1-W-0000000007". Downgrade changes the name.
func (l *Lock) Node() string {
	if l.fromNoCall() {
		return ""
	}
	return l.hold.entry.Place().Name
}

// Token returns the fencing token. Send it with every request to the protected
// resource, and have the resource reject any token smaller than the greatest it
// has seen. Nothing else stops a holder that has lost the lock and does not
// know it yet.
//
// The token of an exclusive lock is greater than that of every earlier
// exclusive lock of this name in the same store. In another, restored or new
// store, tokens may be smaller; docs/use/guarantees.md says what to do.
//
// Shared locks are held together, so their tokens must be compared with the
// greatest exclusive token but must not raise it. A re-entry has the token of
// the lock it re-enters.
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
// The session counts as ended before the store can grant the lock to another
// session. However, a request sent before the loss may still reach the resource
// after it; see Token.
func (l *Lock) Lost() <-chan struct{} {
	if l.fromNoCall() {
		return nil
	}
	h := l.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if h.loss != nil && !l.unlocked {
			close(l.lost)
		}
	}
	return l.lost
}

// Err returns nil while the lock is held, as far as the client knows. Err reads
// the clock, so after a pause of the process it reports a loss even before Lost
// closes. In a virtual machine that was paused, clocks may have stood still;
// only the token helps then.
//
// After a loss the error matches [ErrLost], after Unlock [ErrNotHeld], and
// after a loss followed by Unlock both.
func (l *Lock) Err() error {
	if l.fromNoCall() {
		return errNoLock
	}
	l.hold.check()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	if l.unlocked {
		return l.unlockedError()
	}
	return l.hold.loss
}

// unlockedError must be called with mu held.
func (l *lockState) unlockedError() error {
	if l.unlockErr == l.hold.queue.notHeld {
		return l.unlockErr
	}
	return bothError{l.hold.queue.notHeld, l.unlockErr}
}

// bothError matches two errors but prints only the first.
type bothError struct {
	error
	also error
}

func (e bothError) Unwrap() []error { return []error{e.error, e.also} }

func (l *Lock) noteEnd(err error) {
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	l.unlockErr = err
}

// String describes the lock on one line: name, mode, node, token, and whether
// it is held, unlocked or lost.
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
	case l.unlocked && !errors.Is(l.unlockErr, ErrLost):
		state = "unlocked"
	case l.unlocked, h.loss != nil, ended:
		state = "lost"
	}
	return fmt.Sprintf("%s: %v, %s, token %d, %s", printable(h.queue.name), l.mode(), printable(place.Name), place.Token, state)
}

// GoString describes the lock as String does, for the verb %#v.
func (l *Lock) GoString() string { return "dlock.Lock(" + l.String() + ")" }

// Mode is how a lock is held or requested.
type Mode int

const (
	// Shared is a reader's mode: any number of readers hold the lock together.
	Shared Mode = iota + 1
	// Exclusive is a writer's mode: no other contender holds the lock.
	Exclusive
)

// String returns "shared" or "exclusive".
func (m Mode) String() string {
	switch m {
	case Shared:
		return "shared"
	case Exclusive:
		return "exclusive"
	}
	return "no mode"
}

// ParseMode parses "shared" or "exclusive". Any other text is an error.
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{Shared, Exclusive} {
		if s == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("dlock: %q is no mode of a lock (want %q or %q)", s, Shared, Exclusive)
}

// MarshalText returns "shared" or "exclusive", or an empty text for the zero
// value. Other values are an error.
func (m Mode) MarshalText() ([]byte, error) {
	if m == 0 {
		return nil, nil
	}
	_, err := ParseMode(m.String())
	return []byte(m.String()), err
}

// UnmarshalText is the inverse of MarshalText. On error the mode is unchanged.
func (m *Mode) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*m = 0
		return nil
	}
	parsed, err := ParseMode(string(text))
	if err == nil {
		*m = parsed
	}
	return err
}
