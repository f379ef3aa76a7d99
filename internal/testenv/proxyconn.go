package testenv

import (
	"errors"
	"io"
	"net"
	"time"
)

// connection is a client's connection through a proxy. Separate goroutines read
// and forward, so that cuts hide no disconnect.
//
// proxy.mu guards all other fields.
type connection struct {
	proxy *Proxy

	queues [2]frameQueue
	// sides[d] is where direction d writes. sides[ToServer] is nil until the
	// dial.
	sides     [2]net.Conn
	aborted   bool
	ended     int              // number of directions in which forwarding has ended
	replies   map[int64]*fault // faults for the replies to come, by Frame.ID
	toReplies FrameReader
}

type queuedFrame struct {
	Frame
	at      time.Time // when the proxy's delay ends
	matched bool      // whether fault has been looked up
	fault   *fault
}

type frameQueue struct {
	frames []queuedFrame
	ended  bool // no more frames will be added
}

// startConnection must be called with p.mu held.
func (p *Proxy) startConnection(client net.Conn) {
	requests, replies := p.protocol()
	c := &connection{proxy: p, replies: make(map[int64]*fault), toReplies: replies}
	c.sides[ToClient] = client
	p.connections[c] = true
	p.done.Go(func() { c.read(ToServer, client, requests) })
	p.done.Go(func() { c.forward(ToServer) })
}

// abort must be called with proxy.mu held.
func (c *connection) abort() {
	if c.aborted {
		return
	}
	c.aborted = true
	for _, side := range c.sides {
		if side != nil {
			side.Close()
		}
	}
	delete(c.proxy.connections, c)
	c.proxy.wake.Broadcast()
}

func (c *connection) read(d Direction, from io.Reader, next FrameReader) {
	for {
		f, err := next(from)
		if err != nil {
			f.Kind = Opaque
		}
		if f.Kind == Request {
			c.proxy.countRequest(f.Op)
		}
		if errors.Is(err, ErrOtherProtocol) {
			next, err = ReadBytes, nil
		}
		c.push(d, queuedFrame{Frame: f}, err != nil)
		if err != nil {
			return
		}
	}
}

func (c *connection) push(d Direction, f queuedFrame, last bool) {
	p := c.proxy
	p.change(func() {
		q := &c.queues[d]
		if len(f.Bytes) > 0 && !p.events.hold(c, f) {
			f.at = time.Now().Add(p.delay[d])
			q.frames = append(q.frames, f)
		}
		if p.delay[d] > 0 {
			time.AfterFunc(p.delay[d], func() { p.change(func() {}) })
		}
		q.ended = q.ended || last
	})
}

func (c *connection) forward(d Direction) {
	defer c.forwardingEnded()
	if d == ToServer && !c.dialServer() {
		c.lockAndAbort()
		return
	}
	for {
		f, to, ok := c.next(d)
		if to == nil {
			return
		}
		if !ok {
			closeWrite(to)
			return
		}
		if _, err := to.Write(f.Bytes); err != nil {
			c.lockAndAbort()
			return
		}
	}
}

// dialServer dials once no direction is cut, unless the client has gone.
func (c *connection) dialServer() bool {
	p := c.proxy
	p.mu.Lock()
	for p.cut != [2]bool{} && !c.aborted {
		p.wake.Wait()
	}
	q := &c.queues[ToServer]
	target, gone := p.target, c.aborted || (q.ended && len(q.frames) == 0)
	p.mu.Unlock()
	if gone {
		return false
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	for tries := 0; err != nil && p.dialAgain && tries < 40; tries++ {
		time.Sleep(50 * time.Millisecond)
		server, err = net.DialTimeout("tcp", target, 5*time.Second)
	}
	if err != nil {
		return false
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if c.aborted {
		server.Close()
		return false
	}
	c.sides[ToServer] = server
	p.done.Go(func() { c.read(ToClient, server, c.toReplies) })
	p.done.Go(func() { c.forward(ToClient) })
	return true
}

// next waits for a frame that may pass. At the end of the stream, ok is false.
// After an abort, to is also nil.
func (c *connection) next(d Direction) (f queuedFrame, to net.Conn, ok bool) {
	p := c.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	q := &c.queues[d]
	for !c.passable(d) || !c.faultLetsPass(d) {
		p.wake.Wait()
	}
	if c.aborted {
		return queuedFrame{}, nil, false
	}
	if len(q.frames) == 0 {
		return queuedFrame{}, c.sides[d], false
	}
	f, q.frames = q.frames[0], q.frames[1:]
	return f, c.sides[d], true
}

// passable reports whether cuts and delays let the next frame, or the end of
// the stream, pass. The caller holds proxy.mu.
func (c *connection) passable(d Direction) bool {
	q := &c.queues[d]
	if c.aborted {
		return true
	}
	if c.proxy.cut[d] {
		return false
	}
	if len(q.frames) == 0 {
		return q.ended
	}
	return time.Until(q.frames[0].at) <= 0
}

// faultLetsPass reports whether no fault holds back the first frame of
// direction d. The caller holds proxy.mu.
func (c *connection) faultLetsPass(d Direction) bool {
	if c.aborted || len(c.queues[d].frames) == 0 {
		return true
	}
	f := &c.queues[d].frames[0]
	if !f.matched {
		f.matched = true
		f.fault = c.faultFor(f.Frame)
	}
	if f.fault == nil || f.fault.released {
		return true
	}
	if f.fault.kind == loseRequest || f.fault.kind == loseReply {
		c.abort()
	}
	f.fault.markHit()
	return c.aborted
}

// faultFor keeps a fault of a reply in c.replies until the reply arrives.
func (c *connection) faultFor(f Frame) *fault {
	switch f.Kind {
	case Reply:
		fault := c.replies[f.ID]
		delete(c.replies, f.ID)
		return fault
	case Request:
		fault := c.proxy.matchingFault(f.Op)
		if fault != nil && (fault.kind == loseReply || fault.kind == holdReply) {
			c.replies[f.ID] = fault
			return nil
		}
		return fault
	}
	return nil
}

func (c *connection) lockAndAbort() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	c.abort()
}

func (c *connection) forwardingEnded() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if c.ended++; c.ended == 2 {
		c.abort()
	}
}

// closeWrite closes only the write side, because data may still flow in the
// other direction.
func closeWrite(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
}
