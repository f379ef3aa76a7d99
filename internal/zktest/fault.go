package zktest

import "sync"

// kind is what a fault does to the request it hits.
type kind int

const (
	loseRequest kind = iota
	loseReply
	holdRequest
	holdReply
)

// fault waits for matching requests.
type fault struct {
	kind     kind
	match    func(opcode int32) bool
	once     sync.Once
	hit      chan struct{}
	released bool // by the proxy's lock
}

func (f *fault) strike() { f.once.Do(func() { close(f.hit) }) }

// LoseRequest makes the next request that matches, on any connection, disappear: the server never sees it,
// and its connection is closed on both sides. The channel closes when that has happened. A nil
// match takes any request.
func (p *Proxy) LoseRequest(match func(opcode int32) bool) <-chan struct{} {
	return p.addFault(loseRequest, match).hit
}

// LoseReply lets the next request that matches, on any connection, through to the server, and when its
// reply comes, closes the connection on both sides in place of passing it on: what the request asked for
// has been done, and the client cannot know. The channel closes when that has happened. A nil
// match takes any request.
func (p *Proxy) LoseReply(match func(opcode int32) bool) <-chan struct{} {
	return p.addFault(loseReply, match).hit
}

// HoldRequests holds back matching requests, and what comes behind them on the same
// connection, as order is kept: the server sees them after [Hold.Release]. A nil match takes any request.
func (p *Proxy) HoldRequests(match func(opcode int32) bool) *Hold {
	return &Hold{p, p.addFault(holdRequest, match)}
}

// HoldReplies holds back the replies to matching requests that clients send from now on, and what comes behind
// them on the same connection, as a server keeps order. The requests themselves
// go through. A nil match takes any request, pings included.
func (p *Proxy) HoldReplies(match func(opcode int32) bool) *Hold {
	return &Hold{p, p.addFault(holdReply, match)}
}

// Hold is what [Proxy.HoldRequests] and [Proxy.HoldReplies] hold back.
type Hold struct {
	proxy *Proxy
	fault *fault
}

// Held returns a channel that closes when something is held back for the first time. With
// HoldReplies the server has done then what was asked.
func (h *Hold) Held() <-chan struct{} { return h.fault.hit }

// Release lets everything pass that was held back, and holds nothing any more.
func (h *Hold) Release() {
	h.proxy.change(func() {
		h.fault.released = true
		h.proxy.removeFault(h.fault)
	})
}

// ForgetFaults takes back every LoseRequest and LoseReply that has not struck yet, and releases every Hold.
// Their channels do not close.
func (p *Proxy) ForgetFaults() {
	p.change(func() {
		for _, f := range p.faults {
			f.released = true
		}
		p.faults = nil
	})
}

func (p *Proxy) addFault(k kind, match func(int32) bool) *fault {
	if match == nil {
		match = func(int32) bool { return true }
	}
	f := &fault{kind: k, match: match, hit: make(chan struct{})}
	p.change(func() { p.faults = append(p.faults, f) })
	return f
}

// removeFault needs p.mu.
func (p *Proxy) removeFault(f *fault) {
	for i, other := range p.faults {
		if other == f {
			p.faults = append(p.faults[:i:i], p.faults[i+1:]...)
			return
		}
	}
}

// takeFault returns the oldest fault that matches, which is used up if it is meant for
// one request. It needs p.mu.
func (p *Proxy) takeFault(opcode int32) *fault {
	for _, f := range p.faults {
		if !f.match(opcode) {
			continue
		}
		if f.kind == loseRequest || f.kind == loseReply {
			p.removeFault(f)
		}
		return f
	}
	return nil
}

// eventXid is the xid of a frame that tells of a watch.
const eventXid = -1

// HoldEvents holds back what servers send of watches, on all connections. Unlike
// with [Proxy.HoldReplies] everything else passes, also what comes behind it. No
// network does this: it stands for a server that tells of a watch late.
func (p *Proxy) HoldEvents() *EventHold {
	h := &EventHold{proxy: p, held: make(chan struct{})}
	p.change(func() { p.events = h })
	return h
}

// EventHold is what [Proxy.HoldEvents] holds back.
type EventHold struct {
	proxy *Proxy
	held  chan struct{}
	units []heldEvent
}

type heldEvent struct {
	link *link
	unit unit
}

// Held returns a channel that closes when an event is held back for the first
// time.
func (h *EventHold) Held() <-chan struct{} { return h.held }

// Release lets the events pass that were held back, and holds nothing any more.
// Those of connections that are closed by now are lost.
func (h *EventHold) Release() {
	h.proxy.change(func() {
		for _, e := range h.units {
			q := &e.link.queue[ToClient]
			q.units = append(q.units, e.unit)
		}
		h.units, h.proxy.events = nil, nil
	})
}

// take reports whether it holds a unit back. It needs the proxy's lock.
func (h *EventHold) take(l *link, d Direction, u unit) bool {
	if h == nil || d != ToClient || !u.frame || u.xid != eventXid {
		return false
	}
	if h.units = append(h.units, heldEvent{l, u}); len(h.units) == 1 {
		close(h.held)
	}
	return true
}
