package zkdriver

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Numbers of ZooKeeper's protocol.
const (
	opSetAuth    = 100
	opSetWatches = 101
	opClose      = -11
	xidAuth      = -4
	xidPing      = -2
	codeAuth     = -115

	headerSize = 4
	// replySize is the least length of a connect reply: version, timeout, session, and a
	// password of 16 bytes with its length.
	replySize = 4 + 4 + 8 + 4 + 16
	// maxHandshake is far more than any reply of the handshake has.
	maxHandshake = 4096
	// maxReply is far more than any reply to a request of this driver has.
	maxReply = 256 << 20
	// maxRequestPause is how long requests wait for the watches to be set again. It is a last resort:
	// they are held only if there are watches.
	maxRequestPause = 500 * time.Millisecond
)

// frameConn is one connection to one server. It stands between go-zookeeper and the network and does
// what go-zookeeper leaves to its caller:
//
//   - It does the whole handshake, the login included, within one deadline. (go-zookeeper's own is ten times as
//     long as the session lives, and has no end for the body; and a connection that breaks while go-zookeeper
//     logs in again can block it for good.)
//   - It reads the connect reply and keeps every session but its own from go-zookeeper.
//   - It turns an error of a write into a closed connection, which go-zookeeper
//     notices when it reads, so that it has one way to fail and not two.
//   - After a reconnect it holds requests back until the watches have been set again. go-zookeeper
//     sets them as of the last zxid it has seen, which the answer to a request that
//     overtakes them moves on: a change in between would be missed.
//   - It sees whether the server has confirmed the end of the session.
//   - It keeps replies of the wrong shape from go-zookeeper, see shape.go.
//   - It starts the list behind a create, see prefetch.go.
//
// Deadlines of go-zookeeper are ignored: the session's heartbeat closes a connection that does
// not answer, and does so earlier.
type frameConn struct {
	raw      net.Conn
	dialer   *dialer
	deadline time.Time // of the handshake

	connectSent    driver.Instant // when the connect request was sent
	connectWritten bool           // it has been sent

	// The reading side.
	in            *bufio.Reader
	handshakeDone bool
	unread        []byte // what go-zookeeper has yet to read of the present frame
	frame         []byte // kept for the next one

	// writes counts what has been written. Reading it orders go-zookeeper's reading goroutine
	// after its writing one.
	writes   atomic.Uint64
	closeXid atomic.Int64

	pendingMu sync.Mutex
	pending   map[int32]int32 // the opcodes of requests without a reply, by xid

	mu      sync.Mutex // the writing side
	paused  bool
	delayed []byte
	timer   *time.Timer
}

const noXid = 1 << 40

func newFrameConn(raw net.Conn, l *dialer, deadline time.Time) *frameConn {
	w := &frameConn{raw: raw, dialer: l, deadline: deadline, in: bufio.NewReaderSize(raw, 16<<10),
		pending: make(map[int32]int32)}
	w.closeXid.Store(noXid)
	return w
}

var _ net.Conn = (*frameConn)(nil)

func (c *frameConn) LocalAddr() net.Addr              { return c.raw.LocalAddr() }
func (c *frameConn) RemoteAddr() net.Addr             { return c.raw.RemoteAddr() }
func (c *frameConn) SetDeadline(time.Time) error      { return nil }
func (c *frameConn) SetReadDeadline(time.Time) error  { return nil }
func (c *frameConn) SetWriteDeadline(time.Time) error { return nil }

// Close closes the connection; go-zookeeper, the link and the wire itself all call it. It does
// not take leave of TLS, which may block for seconds.
func (c *frameConn) Close() error {
	if secure, ok := c.raw.(*tls.Conn); ok {
		return secure.NetConn().Close()
	}
	return c.raw.Close()
}

// Write takes one whole frame, which is how go-zookeeper writes.
func (c *frameConn) Write(frame []byte) (int, error) {
	if !c.connectWritten {
		c.connectWritten = true
		c.connectSent = driver.Now()
		c.raw.SetDeadline(c.deadline)
		c.send(frame)
		return len(frame), nil
	}
	if len(frame) < 12 {
		return 0, errors.New("zkdriver: a request without a header")
	}
	length := len(frame)
	opcode := int32(binary.BigEndian.Uint32(frame[8:]))
	xid := int32(binary.BigEndian.Uint32(frame[4:]))
	if opcode == opPing {
		return length, nil // the session has heartbeats of its own, and go-zookeeper does not miss the answer
	}
	switch opcode {
	case opClose:
		c.closeXid.Store(int64(xid))
	case opMulti:
		if p := c.dialer.sendHooks.sent(frame); p != nil {
			defer p.start()
		}
	}
	c.expectReply(xid, opcode)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.paused:
		c.send(frame)
	case opcode == opSetWatches:
		c.send(frame)
		c.resumeRequests()
	default:
		c.delayed = append(c.delayed, frame...)
	}
	return length, nil
}

// expectReply records a request, for its reply.
func (c *frameConn) expectReply(xid, opcode int32) {
	if xid < 0 {
		return // a ping, to which the reply is empty
	}
	c.pendingMu.Lock()
	defer c.pendingMu.Unlock()
	c.pending[xid] = opcode
}

// replyTo returns the opcode of the request that a reply is to. ok is false where
// there is none: go-zookeeper passes such a reply over.
func (c *frameConn) replyTo(xid int32) (opcode int32, ok bool) {
	c.pendingMu.Lock()
	defer c.pendingMu.Unlock()
	opcode, ok = c.pending[xid]
	delete(c.pending, xid)
	return opcode, ok
}

func (c *frameConn) send(frame []byte) {
	c.writes.Add(1)
	if _, err := c.raw.Write(frame); err != nil {
		c.Close()
	}
}

// pauseRequests keeps requests back until the watches have been set again, or until it is clear that
// there are none.
func (c *frameConn) pauseRequests(most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
	c.timer = time.AfterFunc(most, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.resumeRequests()
	})
}

// resumeRequests needs w.mu.
func (c *frameConn) resumeRequests() {
	if !c.paused {
		return
	}
	c.paused = false
	c.timer.Stop()
	if len(c.delayed) > 0 {
		c.send(c.delayed)
		c.delayed = nil
	}
}

// stopTimer ends the timer of a wire that has been closed.
func (c *frameConn) stopTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}

func (c *frameConn) Read(p []byte) (int, error) {
	if !c.handshakeDone {
		if err := c.handshake(); err != nil {
			c.Close()
			c.dialer.recordFailure(c, err)
			return 0, err
		}
		c.handshakeDone = true
	}
	if len(c.unread) == 0 {
		if err := c.nextFrame(); err != nil {
			c.Close()
			return 0, err
		}
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

func (c *frameConn) nextFrame() error {
	head, err := c.in.Peek(8)
	if err != nil {
		return err
	}
	length := int32(binary.BigEndian.Uint32(head))
	if length < 16 || length > maxReply {
		return fmt.Errorf("a reply of %d bytes", length)
	}
	if err := c.readFrame(headerSize + int(length)); err != nil {
		return err
	}
	_ = c.writes.Load()
	xid := int32(binary.BigEndian.Uint32(c.frame[headerSize:]))
	if xid == xidEvent {
		err = checkEvent(c.frame[headerSize:])
	} else if opcode, ok := c.replyTo(xid); ok {
		err = checkShape(opcode, c.frame[headerSize:])
	}
	if err != nil {
		return err
	}
	if int64(xid) == c.closeXid.Load() {
		c.dialer.sessionClosed.Store(true)
	}
	c.unread = c.frame
	return nil
}

// readFrame believes in a length only as the bytes come.
func (c *frameConn) readFrame(size int) error {
	const step, keep = 1 << 20, 64 << 10
	if cap(c.frame) > keep {
		c.frame = nil
	}
	c.frame = c.frame[:0]
	for len(c.frame) < size {
		begin := len(c.frame)
		n := min(step, size-begin)
		c.frame = slices.Grow(c.frame, n)[:begin+n]
		if _, err := io.ReadFull(c.in, c.frame[begin:]); err != nil {
			return err
		}
	}
	return nil
}

// connectReply is what the server says to a connect request.
type connectReply struct {
	timeout  time.Duration
	session  int64
	password []byte
}

func (c *frameConn) handshake() error {
	frame, err := c.readHandshake(replySize)
	if err != nil {
		return err
	}
	body := frame[headerSize:]
	if length := int32(binary.BigEndian.Uint32(body[16:])); length != 16 {
		return fmt.Errorf("a session's password of %d bytes", length)
	}
	r := connectReply{
		timeout:  time.Duration(int32(binary.BigEndian.Uint32(body[4:]))) * time.Millisecond,
		session:  int64(binary.BigEndian.Uint64(body[8:])),
		password: body[20:36],
	}
	if err := c.dialer.checkReply(r); err != nil {
		return err
	}
	// A session that is attached again has logged in before, and has no time to lose: the answers come
	// before any other, and go-zookeeper passes them over.
	if err := c.login(c.dialer.sessionID() == 0); err != nil {
		return err
	}
	c.raw.SetDeadline(time.Time{})
	c.unread = frame
	return c.dialer.attach(c, r)
}

// login proves who this is before anything else is sent. It may wait for the answers.
func (c *frameConn) login(wait bool) error {
	logins := c.dialer.logins()
	var b []byte
	for _, auth := range logins {
		b = appendLogin(b, auth)
	}
	if len(b) == 0 {
		return nil
	}
	if _, err := c.raw.Write(b); err != nil {
		return err
	}
	if !wait {
		return nil
	}
	for range logins {
		frame, err := c.readHandshake(16)
		if err != nil {
			return err
		}
		switch code := int32(binary.BigEndian.Uint32(frame[headerSize+12:])); code {
		case 0:
		case codeAuth:
			return errLogin
		default:
			return fmt.Errorf("the login was answered with error %d", code)
		}
	}
	return nil
}

func appendLogin(b, auth []byte) []byte {
	const scheme = "digest"
	b = binary.BigEndian.AppendUint32(b, uint32(4+4+4+4+len(scheme)+4+len(auth)))
	b = binary.BigEndian.AppendUint32(b, xidAuth&0xffffffff)
	b = binary.BigEndian.AppendUint32(b, opSetAuth)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(scheme)))
	b = append(b, scheme...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(auth)))
	return append(b, auth...)
}

var (
	errLogin     = errors.New("the server refused the login; if its digest scheme is off, use handover=list and no user")
	errSpeaksTLS = errors.New("the port speaks TLS: add tls=true to the dsn, or use the plain port")
	errForeign   = errors.New("the port is not a ZooKeeper client port")
)

// readHandshake reads one frame of at least so many bytes.
func (c *frameConn) readHandshake(least int) ([]byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return nil, handshakeError(err)
	}
	length := int(int32(binary.BigEndian.Uint32(head[:])))
	switch {
	case head[0] == 0x15 && head[1] == 0x03: // an alert of TLS
		return nil, errSpeaksTLS
	case length < least || length > maxHandshake:
		return nil, errForeign
	}
	frame := make([]byte, headerSize+length)
	copy(frame, head[:])
	if _, err := io.ReadFull(c.in, frame[headerSize:]); err != nil {
		return nil, handshakeError(err)
	}
	return frame, nil
}

func handshakeError(err error) error {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("no answer to the connect request: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("the server closed the connection during the handshake; it may be starting, full, without a quorum, or the port may speak TLS: %w", err)
	}
	return err
}
