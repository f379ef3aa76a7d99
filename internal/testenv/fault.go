package testenv

import (
	"slices"
	"sync"
)

type faultKind int

const (
	loseRequest faultKind = iota
	loseReply
	holdRequest
	holdReply
)

// A fault loses only one message, but holds messages until it is released.
type fault struct {
	kind     faultKind
	match    func(op int32) bool
	once     sync.Once
	hit      chan struct{} // closed when the fault first applies
	released bool          // guarded by proxy.mu
}

func (f *fault) markHit() { f.once.Do(func() { close(f.hit) }) }

// LoseRequest drops the next matching request, on any connection, and closes
// both sides of that connection. The server never receives the request. The
// returned channel is closed when that has happened. A nil match matches any
// request.
func (p *Proxy) LoseRequest(match func(op int32) bool) <-chan struct{} {
	return p.addFault(loseRequest, match).hit
}

// LoseReply drops the reply to the next matching request, on any connection,
// and closes both sides of that connection. The server has then handled the
// request, but the client cannot know. The returned channel is closed when that
// has happened. A nil match matches any request.
func (p *Proxy) LoseReply(match func(op int32) bool) <-chan struct{} {
	return p.addFault(loseReply, match).hit
}

// HoldRequests delays matching requests until [Hold.Release], along with
// everything behind them on their connections, since the proxy preserves the
// order. A nil match matches any request.
func (p *Proxy) HoldRequests(match func(op int32) bool) *Hold {
	return &Hold{p, p.addFault(holdRequest, match)}
}

// HoldReplies delays the replies to matching requests until [Hold.Release],
// along with everything behind them on their connections, since the proxy
// preserves the order. It applies to requests sent from now on, which do reach
// the server. A nil match matches any request, including heartbeats.
func (p *Proxy) HoldReplies(match func(op int32) bool) *Hold {
	return &Hold{p, p.addFault(holdReply, match)}
}

// Hold represents the requests or replies held by [Proxy.HoldRequests] or
// [Proxy.HoldReplies].
type Hold struct {
	proxy *Proxy
	fault *fault
}

// Held returns a channel that is closed when a request or reply is first held.
// With HoldReplies, the server has handled that request.
func (h *Hold) Held() <-chan struct{} { return h.fault.hit }

// Release ends the hold and forwards everything that was held.
func (h *Hold) Release() {
	h.proxy.change(func() {
		h.fault.released = true
		h.proxy.removeFault(h.fault)
	})
}

// ForgetFaults cancels pending calls of LoseRequest and LoseReply, whose
// channels are then never closed, and releases every Hold.
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

// removeFault must be called with p.mu held.
func (p *Proxy) removeFault(f *fault) {
	if i := slices.Index(p.faults, f); i >= 0 {
		p.faults = slices.Concat(p.faults[:i], p.faults[i+1:])
	}
}

// matchingFault consumes the fault if it applies only once. The caller holds
// p.mu.
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

// HoldEvents delays the events sent by servers, on all connections, until
// [EventHold.Release]. Messages behind an event are not delayed, unlike with
// [Proxy.HoldReplies]. A network never reorders data like that, but a server
// may send an event late.
func (p *Proxy) HoldEvents() *EventHold {
	h := &EventHold{proxy: p, held: make(chan struct{})}
	p.change(func() { p.events = h })
	return h
}

// EventHold represents the events held by [Proxy.HoldEvents].
type EventHold struct {
	proxy  *Proxy
	held   chan struct{}
	events []heldEvent
}

type heldEvent struct {
	connection *connection
	frame      queuedFrame
}

// Held returns a channel that is closed when an event is first held.
func (h *EventHold) Held() <-chan struct{} { return h.held }

func (h *EventHold) Count() (n int) {
	h.proxy.change(func() { n = len(h.events) })
	return n
}

// Release ends the hold and forwards the events. Events of closed connections
// are lost.
func (h *EventHold) Release() {
	h.proxy.change(func() {
		for _, e := range h.events {
			q := &e.connection.queues[ToClient]
			q.frames = append(q.frames, e.frame)
		}
		h.events, h.proxy.events = nil, nil
	})
}

// hold delays f if f is an event. The caller holds proxy.mu.
func (h *EventHold) hold(c *connection, f queuedFrame) bool {
	if h == nil || f.Kind != Event {
		return false
	}
	if h.events = append(h.events, heldEvent{c, f}); len(h.events) == 1 {
		close(h.held)
	}
	return true
}
