package testenv

import (
	"errors"
	"io"
	"net"
	"time"
)

// connection is one connection of a client through a proxy. Each direction has
// a goroutine that reads into a queue, and a goroutine that forwards from that
// queue. So the proxy notices the end of a connection also while nothing may
// pass.
//
// The proxy's lock guards the fields after the first one.
type connection struct {
	proxy *Proxy

	queues [2]frameQueue
	// The connections to the server and to the client, each at the index of the
	// direction in which bytes are written to it. The server's is nil until the
	// server is dialed.
	sides     [2]net.Conn
	aborted   bool
	ended     int              // the number of directions whose forwarding has ended
	replies   map[int64]*fault // faults for the replies to requests that have passed, by Frame.ID
	toReplies FrameReader
}

// queuedFrame is a frame that the proxy has read and not yet forwarded.
type queuedFrame struct {
	Frame
	at      time.Time // the time from which on the delay of the proxy lets the frame pass
	matched bool      // whether the fault for this frame was looked up; if so, the field fault holds it, or nil if no fault hits the frame
	fault   *fault
}

type frameQueue struct {
	frames []queuedFrame
	ended  bool // no more frames come
}

// startConnection begins to forward what a client sends. The caller holds p.mu.
func (p *Proxy) startConnection(client net.Conn) {
	requests, replies := p.protocol()
	c := &connection{proxy: p, replies: make(map[int64]*fault), toReplies: replies}
	c.sides[ToClient] = client
	p.connections[c] = true
	p.done.Go(func() { c.read(ToServer, client, requests) })
	p.done.Go(func() { c.forward(ToServer) })
}

// abort closes both sides. The caller holds p.mu.
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

// read puts what comes from one side into the queue of direction d, until that
// side ends.
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

// forward writes what is in the queue of direction d, until the end of the
// queue or of the connection.
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

// dialServer dials the server as soon as the proxy is not cut in any direction.
// It reports whether the connection goes on. If the client has gone before the
// dial, the server never sees a connection.
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

// next waits for the next frame that may pass. It returns the frame and the
// side to write it to. If no frame will come any more, ok is false. If the
// connection was aborted, the side is nil as well.
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

// passable reports whether the next frame of a direction may be forwarded now, as
// far as cuts and delays go. If no frame is left, it reports whether the end of the
// stream may be forwarded. The caller holds p.mu.
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

// faultLetsPass reports whether no fault keeps the first frame of a direction
// from passing. The first call for a frame looks up the fault that hits the
// frame. The caller holds p.mu.
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

// faultFor returns the fault for a frame, or nil. A fault for the reply to a
// request is kept in c.replies until the reply comes.
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

// forwardingEnded counts a direction whose forwarding has ended, and closes the
// connection after the second one.
func (c *connection) forwardingEnded() {
	c.proxy.mu.Lock()
	defer c.proxy.mu.Unlock()
	if c.ended++; c.ended == 2 {
		c.abort()
	}
}

// closeWrite passes on the end of one direction only. The other direction may
// still have data.
func closeWrite(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
}
