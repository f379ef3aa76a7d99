package testenv

import (
	"slices"
	"sync"
)

// faultKind is what a fault does to a request.
type faultKind int

const (
	loseRequest faultKind = iota
	loseReply
	holdRequest
	holdReply
)

// fault is what a proxy does to the next request that matches, or to all that
// match.
type fault struct {
	kind     faultKind
	match    func(op int32) bool
	once     sync.Once
	hit      chan struct{} // closed when the fault has hit a request for the first time
	released bool          // guarded by the proxy's lock
}

func (f *fault) markHit() { f.once.Do(func() { close(f.hit) }) }

// LoseRequest loses the next request that matches, on any connection: the
// server never gets it, and the proxy closes its connection on both sides. The
// channel closes when that has happened. A nil match takes any request.
func (p *Proxy) LoseRequest(match func(op int32) bool) <-chan struct{} {
	return p.addFault(loseRequest, match).hit
}

// LoseReply loses the reply to the next request that matches, on any
// connection. The request goes through to the server. When its reply comes, the
// proxy closes the connection on both sides. So the server has done what the
// request asked for, and the client cannot know. The channel closes when that
// has happened. A nil match takes any request.
func (p *Proxy) LoseReply(match func(op int32) bool) <-chan struct{} {
	return p.addFault(loseReply, match).hit
}

// HoldRequests holds back requests that match, and everything that follows such
// a request on its connection, because the proxy keeps the order. The server
// gets them after [Hold.Release]. A nil match takes any request.
func (p *Proxy) HoldRequests(match func(op int32) bool) *Hold {
	return &Hold{p, p.addFault(holdRequest, match)}
}

// HoldReplies holds back the replies to matching requests that clients send
// from now on, and everything that follows such a reply on its connection,
// because the proxy keeps the order. The requests themselves go through. A nil
// match takes any request, also those that keep a session alive.
func (p *Proxy) HoldReplies(match func(op int32) bool) *Hold {
	return &Hold{p, p.addFault(holdReply, match)}
}

// Hold is the result of [Proxy.HoldRequests] and [Proxy.HoldReplies]. Its
// methods tell when something is held back, and let it pass.
type Hold struct {
	proxy *Proxy
	fault *fault
}

// Held returns a channel that closes when something is held back for the first
// time. With HoldReplies the server has then done what the request asked for.
func (h *Hold) Held() <-chan struct{} { return h.fault.hit }

// Release lets everything pass that was held back, and ends the hold.
func (h *Hold) Release() {
	h.proxy.change(func() {
		h.fault.released = true
		h.proxy.removeFault(h.fault)
	})
}

// ForgetFaults cancels each fault of LoseRequest and LoseReply that has not hit
// a request yet, and releases every Hold. The channels of faults that have hit
// nothing do not close.
func (p *Proxy) ForgetFaults() {
	p.change(func() {
		for _, f := range p.faults {
			f.released = true
		}
		p.faults = nil
	})
}

func (p *Proxy) addFault(k faultKind, match func(int32) bool) *fault {
	if match == nil {
		match = func(int32) bool { return true }
	}
	f := &fault{kind: k, match: match, hit: make(chan struct{})}
	p.change(func() { p.faults = append(p.faults, f) })
	return f
}

// removeFault takes f out of the list of faults. The caller holds p.mu.
func (p *Proxy) removeFault(f *fault) {
	if i := slices.Index(p.faults, f); i >= 0 {
		p.faults = slices.Concat(p.faults[:i], p.faults[i+1:])
	}
}

// matchingFault returns the oldest fault that matches, or nil. A fault that is
// for one request only is taken out of the list. The caller holds p.mu.
func (p *Proxy) matchingFault(op int32) *fault {
	for _, f := range p.faults {
		if !f.match(op) {
			continue
		}
		if f.kind == loseRequest || f.kind == loseReply {
			p.removeFault(f)
		}
		return f
	}
	return nil
}

// HoldEvents holds back the events that servers send, on all connections.
// Everything else passes, also what follows an event on the same connection.
// ([Proxy.HoldReplies] holds back what follows a reply.) No network does this,
// but a server may send an event late.
func (p *Proxy) HoldEvents() *EventHold {
	h := &EventHold{proxy: p, held: make(chan struct{})}
	p.change(func() { p.events = h })
	return h
}

// EventHold is the result of [Proxy.HoldEvents]. Its methods tell when an event
// is held back, and let the events pass.
type EventHold struct {
	proxy  *Proxy
	held   chan struct{}
	events []heldEvent
}

type heldEvent struct {
	connection *connection
	frame      queuedFrame
}

// Held returns a channel that closes when an event is held back for the first time.
func (h *EventHold) Held() <-chan struct{} { return h.held }

// Count returns how many events are held back.
func (h *EventHold) Count() (n int) {
	h.proxy.change(func() { n = len(h.events) })
	return n
}

// Release lets the events pass that were held back, and ends the hold. Events
// of connections that are closed by now are lost.
func (h *EventHold) Release() {
	h.proxy.change(func() {
		for _, e := range h.events {
			q := &e.connection.queues[ToClient]
			q.frames = append(q.frames, e.frame)
		}
		h.events, h.proxy.events = nil, nil
	})
}

// hold holds a frame back if the frame is an event, and reports whether it did.
// If h is nil, every frame passes. The caller holds the proxy's lock.
func (h *EventHold) hold(c *connection, f queuedFrame) bool {
	if h == nil || f.Kind != Event {
		return false
	}
	if h.events = append(h.events, heldEvent{c, f}); len(h.events) == 1 {
		close(h.held)
	}
	return true
}
