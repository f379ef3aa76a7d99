package zkconn

import (
	"bufio"
	"cmp"
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

// maxRequestPause limits how long requests are delayed after a reconnect.
const maxRequestPause = 500 * time.Millisecond

// frameConn is one connection to one server, between go-zookeeper and the
// network. It does what go-zookeeper leaves to its caller:
//
//   - It does the whole handshake, the login included, within one deadline.
//   - It refuses malformed replies, and connect replies for another session.
//   - If a write fails, it closes the connection, so that go-zookeeper sees
//     every failure when it reads.
//   - After a reconnect, it delays requests until go-zookeeper has set the
//     watches again. The server then reports the changes since the last zxid.
//     Such a report would also end a watch that a request had just set.
//   - It writes the session's last zxid into the requests that need it. It
//     hides zxids from go-zookeeper, whose goroutines use the last one without
//     a lock.
//   - It notices when the server has confirmed the end of the session.
//
// A frameConn ignores go-zookeeper's deadlines and pings, because the Conn's
// heartbeats detect a silent connection earlier.
type frameConn struct {
	raw      net.Conn
	owner    connOwner
	deadline time.Time // for the handshake

	connectSent    driver.Instant // when the connect request was sent
	connectWritten bool           // whether the connect request has been sent
	since          int64          // last zxid before this connection, or 0

	// The fields below are used only by the reading goroutine.
	in            *bufio.Reader
	handshakeDone bool
	unread        []byte // rest of the frame, for go-zookeeper to read
	frame         []byte // current frame; the buffer is reused

	// writes is loaded only to synchronize reading with writing.
	writes   atomic.Uint64
	closeXid atomic.Int64

	pendingMu sync.Mutex
	pending   map[int32]int32 // opcodes of requests without a reply, by xid

	mu      sync.Mutex // guards the fields below
	paused  bool
	delayed []byte
	timer   *time.Timer
}

// connOwner has the methods of the dialer that a frameConn calls.
type connOwner interface {
	logins() [][]byte
	sessionID() int64 // 0 before the session has begun

	// checkReply returns an error if the reply is for another session.
	checkReply(connectReply) error

	attach(*frameConn, connectReply) error
	recordFailure(*frameConn, error)

	// broken is called when a connection breaks after its handshake, before
	// go-zookeeper notices.
	broken(*frameConn)

	// lastZxid holds the zxid of the session's last reply.
	lastZxid() *atomic.Int64

	// sending is called before a transaction is written.
	sending(transaction []byte)

	closeConfirmed()
}

const noXid = 1 << 40

func newFrameConn(raw net.Conn, owner connOwner, deadline time.Time) *frameConn {
	c := &frameConn{raw: raw, owner: owner, deadline: deadline, in: bufio.NewReaderSize(raw, 16<<10),
		pending: make(map[int32]int32)}
	c.closeXid.Store(noXid)
	return c
}

var _ net.Conn = (*frameConn)(nil)

func (c *frameConn) LocalAddr() net.Addr              { return c.raw.LocalAddr() }
func (c *frameConn) RemoteAddr() net.Addr             { return c.raw.RemoteAddr() }
func (c *frameConn) SetDeadline(time.Time) error      { return nil }
func (c *frameConn) SetReadDeadline(time.Time) error  { return nil }
func (c *frameConn) SetWriteDeadline(time.Time) error { return nil }

// Close closes the connection, without TLS's close_notify, which may block.
func (c *frameConn) Close() error {
	if secure, ok := c.raw.(*tls.Conn); ok {
		return secure.NetConn().Close()
	}
	return c.raw.Close()
}

// Write expects one whole frame, which is how go-zookeeper writes each request.
func (c *frameConn) Write(frame []byte) (int, error) {
	if !c.connectWritten {
		c.connectWritten = true
		c.connectSent = driver.Now()
		c.raw.SetDeadline(c.deadline)
		c.since = c.owner.lastZxid().Load()
		c.send(withZxid(frame, connectZxid, c.since))
		return len(frame), nil
	}
	if len(frame) < 12 {
		return 0, errors.New("zkdriver: a request without a header")
	}
	length := len(frame)
	opcode := int32(binary.BigEndian.Uint32(frame[8:]))
	xid := int32(binary.BigEndian.Uint32(frame[4:]))
	if opcode == opPing {
		return length, nil // dropped: the Conn sends its own heartbeats
	}
	switch opcode {
	case opClose:
		c.closeXid.Store(int64(xid))
	case opMulti:
		c.owner.sending(frame)
	case opSetWatches:
		// On the first connection, any zxid will do: no watches are set yet.
		frame = withZxid(frame, setWatchesZxid, cmp.Or(c.since, c.owner.lastZxid().Load()))
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

func withZxid(request []byte, at int, zxid int64) []byte {
	request = slices.Clone(request)
	if len(request) >= at+8 {
		binary.BigEndian.PutUint64(request[at:], uint64(zxid))
	}
	return request
}

// expectReply records a request's opcode, which tells the shape of its reply.
func (c *frameConn) expectReply(xid, opcode int32) {
	if xid < 0 {
		return // its reply has no body to check
	}
	c.pendingMu.Lock()
	defer c.pendingMu.Unlock()
	c.pending[xid] = opcode
}

// replyTo returns the opcode of the answered request. go-zookeeper ignores a
// reply without one.
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

// resumeRequests sends the delayed requests. The caller holds c.mu.
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
			c.owner.recordFailure(c, err)
			return 0, err
		}
		c.handshakeDone = true
	}
	if len(c.unread) == 0 {
		if err := c.nextFrame(); err != nil {
			c.owner.broken(c)
			c.Close()
			return 0, err
		}
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

func (c *frameConn) handshake() error {
	frame, err := readHandshake(c.in, connectReplySize)
	if err != nil {
		return err
	}
	r, err := parseConnectReply(frame)
	if err != nil {
		return err
	}
	if err := c.owner.checkReply(r); err != nil {
		return err
	}
	// On a reconnect, do not wait: the lease is running out, and the server
	// accepted these logins before. go-zookeeper skips the answers.
	if err := c.login(c.owner.sessionID() == 0); err != nil {
		return err
	}
	c.raw.SetDeadline(time.Time{})
	c.unread = frame
	return c.owner.attach(c, r)
}

// login sends the session's logins. If wait is true, it awaits the answers.
func (c *frameConn) login(wait bool) error {
	logins := c.owner.logins()
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
		frame, err := readHandshake(c.in, 16)
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
		c.owner.closeConfirmed()
	}
	if zxid := c.frame[replyZxid : replyZxid+8]; xid >= 0 {
		if id := int64(binary.BigEndian.Uint64(zxid)); id > 0 {
			c.owner.lastZxid().Store(id)
		}
		clear(zxid)
	}
	c.unread = c.frame
	return nil
}

// readFrame allocates memory only as bytes arrive, because a hostile server may
// announce any size.
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

type connectReply struct {
	timeout  time.Duration
	session  int64
	password []byte
}

// parseConnectReply needs connectReplySize bytes after the header.
func parseConnectReply(frame []byte) (connectReply, error) {
	body := frame[headerSize:]
	if length := int32(binary.BigEndian.Uint32(body[16:])); length != 16 {
		return connectReply{}, fmt.Errorf("a session's password of %d bytes", length)
	}
	return connectReply{
		timeout:  time.Duration(int32(binary.BigEndian.Uint32(body[4:]))) * time.Millisecond,
		session:  int64(binary.BigEndian.Uint64(body[8:])),
		password: body[20:36],
	}, nil
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

// readHandshake reads one frame. A body shorter than least is an error.
func readHandshake(in io.Reader, least int) ([]byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, handshakeError(err)
	}
	length := int(int32(binary.BigEndian.Uint32(head[:])))
	switch {
	case head[0] == 0x15 && head[1] == 0x03: // a TLS alert
		return nil, errSpeaksTLS
	case length < least || length > maxHandshake:
		return nil, errForeign
	}
	frame := make([]byte, headerSize+length)
	copy(frame, head[:])
	if _, err := io.ReadFull(in, frame[headerSize:]); err != nil {
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
