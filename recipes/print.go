package recipes

import (
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

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
	return fmt.Sprintf("%s: %v, %s, token %d, %s", printable(h.m.name), l.mode, printable(place.Name), place.Token, state)
}

// GoString returns "dlock.Lock(...)" with the result of String in the brackets.
func (l *Lock) GoString() string { return "dlock.Lock(" + l.String() + ")" }

// String returns the lock's name, quoted if it would not print.
func (m *RWMutex) String() string {
	if m == nil || m.client == nil {
		return "no lock"
	}
	return printable(m.name)
}

// GoString returns "dlock.RWMutex(...)" with the result of String in the
// brackets.
func (m *RWMutex) GoString() string { return "dlock.RWMutex(" + m.String() + ")" }

// String returns one line for people: the client's session, its server and its
// timeout, or why there is none. It may be called at any time and does no I/O.
func (c *Client) String() string {
	c = c.opened()
	if c.closedOr(nil) != nil {
		return "closed"
	}
	s := c.usable()
	if s == nil {
		return "not connected"
	}
	i := driver.Describe(s.ofDriver())
	if i.ID == "" {
		return "connected"
	}
	return fmt.Sprintf("session %s, server %s, timeout %v", printable(i.ID), printable(i.Server), i.Timeout)
}

// GoString returns "dlock.Client(...)" with the result of String in the
// brackets.
func (c *Client) GoString() string { return "dlock.Client(" + c.String() + ")" }
