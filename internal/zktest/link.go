package zktest

import (
	"errors"
	"io"
	"math"
	"net"
	"time"
)

// link is one connection through a proxy. Each direction has a goroutine that reads
// into a queue and one that forwards from it, so that the end of a connection is
// noticed while nothing may pass.
//
// The fields below the first two are guarded by the proxy's lock.
type link struct {
	proxy *Proxy
	queue [2]unitQueue

	conn      [2]net.Conn // by the direction in which it is written to; the server's is nil until it is dialed
	aborted   bool
	forwarded int              // directions that have ended
	replies   map[int32]*fault // of requests on their way, by xid
}

// unit is what is forwarded or hit as a whole: a frame, or some bytes.
type unit struct {
	bytes  []byte
	frame  bool
	first  bool
	opcode int32 // of a request
	xid    int32
	at     time.Time
	met    bool // its fault, if any, has been found
	fault  *fault
}

type unitQueue struct {
	units []unit
	ended bool
}

// connectXid stands for the xid that connect requests and their replies do not have.
const connectXid = math.MinInt32

// startLink needs p.mu.
func (p *Proxy) startLink(client net.Conn) {
	l := &link{proxy: p, replies: make(map[int32]*fault)}
	l.conn[ToClient] = client
	p.links[l] = true
	p.done.Go(func() { l.read(ToServer, client) })
	p.done.Go(func() { l.forward(ToServer) })
}

// abort closes both sides. It needs p.mu.
func (l *link) abort() {
	if l.aborted {
		return
	}
	l.aborted = true
	for _, conn := range l.conn {
		if conn != nil {
			conn.Close()
		}
	}
	delete(l.proxy.links, l)
	l.proxy.wake.Broadcast()
}

// read puts what comes from a connection into the queue of direction d.
func (l *link) read(d Direction, from io.Reader) {
	for first, next := true, l.reader(d); ; first = false {
		bytes, err := next(from)
		if first && l.proxy.plain {
			next = readBytes
		}
		u := unit{bytes: bytes, first: first}
		if u.frame = err == nil && !l.proxy.plain; u.frame {
			l.parse(d, &u)
		}
		if errors.Is(err, errNoFrame) {
			next, err = readBytes, nil
		}
		l.push(d, u, err != nil)
		if err != nil {
			return
		}
	}
}

// reader returns what reads the first unit.
func (l *link) reader(d Direction) func(io.Reader) ([]byte, error) {
	switch {
	case !l.proxy.plain:
		return readFrame
	case d == ToServer && l.proxy.rewrite != nil:
		return readGreeting
	}
	return readBytes
}

func readGreeting(r io.Reader) ([]byte, error) {
	greeting := make([]byte, greetingSize)
	n, err := io.ReadFull(r, greeting)
	return greeting[:n], err
}

func readBytes(r io.Reader) ([]byte, error) {
	buf := make([]byte, 16<<10)
	n, err := r.Read(buf)
	return buf[:n], err
}

// parse fills in what kind of frame it is, and counts requests.
func (l *link) parse(d Direction, u *unit) {
	p := l.proxy
	u.xid = connectXid
	if !u.first {
		u.xid = int32At(u.bytes, 0)
	}
	switch {
	case d == ToServer && u.first:
		u.opcode = OpConnect
	case d == ToServer:
		u.opcode = int32At(u.bytes, 4)
	case u.first:
		p.mu.Lock()
		p.sessions = append(p.sessions, parseSession(u.bytes))
		p.mu.Unlock()
	}
	if d == ToServer {
		p.mu.Lock()
		p.frames[u.opcode]++
		hook := p.hook
		p.mu.Unlock()
		if hook != nil {
			hook(u.opcode)
		}
	}
}

func (l *link) push(d Direction, u unit, last bool) {
	p := l.proxy
	p.change(func() {
		q := &l.queue[d]
		if len(u.bytes) > 0 && !p.events.take(l, d, u) {
			u.at = time.Now().Add(p.delay[d])
			q.units = append(q.units, u)
		}
		if p.delay[d] > 0 {
			time.AfterFunc(p.delay[d], func() { p.change(func() {}) })
		}
		q.ended = q.ended || last
	})
}

// forward writes what is in the queue of direction d, until its end or the link's.
func (l *link) forward(d Direction) {
	defer l.forwardEnded()
	if d == ToServer && !l.connect() {
		l.abortLocked()
		return
	}
	for {
		u, to, ok := l.next(d)
		if to == nil {
			return
		}
		if !ok {
			closeWrite(to)
			return
		}
		if _, err := to.Write(u.bytes); err != nil {
			l.abortLocked()
			return
		}
	}
}

// connect dials the server once something may pass to it. A client that has gone by
// then was never there for the server.
func (l *link) connect() bool {
	p := l.proxy
	p.mu.Lock()
	for p.cut != [2]bool{} && !l.aborted {
		p.wake.Wait()
	}
	target, gone := p.target, l.aborted || (l.queue[ToServer].ended && len(l.queue[ToServer].units) == 0)
	p.mu.Unlock()
	if gone {
		return false
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	for tries := 0; err != nil && p.patient && tries < 40; tries++ {
		time.Sleep(50 * time.Millisecond)
		server, err = net.DialTimeout("tcp", target, 5*time.Second)
	}
	if err != nil {
		return false
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if l.aborted {
		server.Close()
		return false
	}
	l.conn[ToServer] = server
	p.done.Go(func() { l.read(ToClient, server) })
	p.done.Go(func() { l.forward(ToClient) })
	return true
}

// next waits for the next unit that may pass and returns it with the connection to write it
// to; ok is false at the end of the direction. There is no connection when the link is over.
func (l *link) next(d Direction) (u unit, to net.Conn, ok bool) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	q := &l.queue[d]
	for !l.passable(d) || !l.meetFault(d) {
		p.wake.Wait()
	}
	if l.aborted {
		return unit{}, nil, false
	}
	if len(q.units) == 0 {
		return unit{}, l.conn[d], false
	}
	u, q.units = q.units[0], q.units[1:]
	if u.first && d == ToServer && p.rewrite != nil {
		u.bytes = p.rewrite(u.bytes)
	}
	return u, l.conn[d], true
}

// passable needs p.mu.
func (l *link) passable(d Direction) bool {
	q := &l.queue[d]
	if l.aborted {
		return true
	}
	if l.proxy.cut[d] {
		return false
	}
	if len(q.units) == 0 {
		return q.ended
	}
	return time.Until(q.units[0].at) <= 0
}

// meetFault reports whether the foremost unit, if there is one, may pass, and lets it
// suffer the fault that was meant for it, once. It needs p.mu.
func (l *link) meetFault(d Direction) bool {
	if l.aborted || len(l.queue[d].units) == 0 {
		return true
	}
	u := &l.queue[d].units[0]
	if u.frame && !u.met {
		u.met = true
		u.fault = l.faultFor(d, u)
	}
	if u.fault == nil || u.fault.released {
		return true
	}
	if u.fault.kind == loseRequest || u.fault.kind == loseReply {
		l.abort()
	}
	u.fault.strike()
	return l.aborted
}

// faultFor finds the fault for this unit; one that is meant for the reply waits in
// l.replies until that comes.
func (l *link) faultFor(d Direction, u *unit) *fault {
	if d == ToClient {
		f := l.replies[u.xid]
		delete(l.replies, u.xid)
		return f
	}
	f := l.proxy.takeFault(u.opcode)
	if f != nil && (f.kind == loseReply || f.kind == holdReply) {
		l.replies[u.xid] = f
		return nil
	}
	return f
}

func (l *link) abortLocked() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.abort()
}

// forwardEnded closes the link when both directions have ended.
func (l *link) forwardEnded() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.forwarded++; l.forwarded == 2 {
		l.abort()
	}
}

// closeWrite passes on the end of one direction only: the other may still have something to say.
func closeWrite(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.CloseWrite()
	}
}
