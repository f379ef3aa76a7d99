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
	// maxHold is how long requests wait for the watches to be set again. It is a last resort:
	// they are held only if there are watches.
	maxHold = 500 * time.Millisecond
)

// wire is one connection to one server. It stands between go-zookeeper and the network and does
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
type wire struct {
	raw      net.Conn
	link     *link
	deadline time.Time // of the handshake

	asked driver.Instant // when the connect request was sent
	begun bool           // it has been sent

	// The reading side.
	in     *bufio.Reader
	shaken bool
	ready  []byte // what go-zookeeper has yet to read of the present frame
	frame  []byte // kept for the next one

	// writes counts what has been written. Reading it orders go-zookeeper's reading goroutine
	// after its writing one.
	writes   atomic.Uint64
	closeXid atomic.Int64

	pendingMu sync.Mutex
	pending   map[int32]int32 // the opcodes of requests without a reply, by xid

	mu      sync.Mutex // the writing side
	holding bool
	held    []byte
	timer   *time.Timer
}

const noXid = 1 << 40

func newWire(raw net.Conn, l *link, deadline time.Time) *wire {
	w := &wire{raw: raw, link: l, deadline: deadline, in: bufio.NewReaderSize(raw, 16<<10),
		pending: make(map[int32]int32)}
	w.closeXid.Store(noXid)
	return w
}

var _ net.Conn = (*wire)(nil)

func (w *wire) LocalAddr() net.Addr              { return w.raw.LocalAddr() }
func (w *wire) RemoteAddr() net.Addr             { return w.raw.RemoteAddr() }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// Close closes the connection; go-zookeeper, the link and the wire itself all call it. It does
// not take leave of TLS, which may block for seconds.
func (w *wire) Close() error {
	if secure, ok := w.raw.(*tls.Conn); ok {
		return secure.NetConn().Close()
	}
	return w.raw.Close()
}

// Write takes one whole frame, which is how go-zookeeper writes.
func (w *wire) Write(frame []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.asked = driver.Now()
		w.raw.SetDeadline(w.deadline)
		w.send(frame)
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
		w.closeXid.Store(int64(xid))
	case opMulti:
		if p := w.link.prefetches.sent(frame); p != nil {
			defer p.start()
		}
	}
	w.expect(xid, opcode)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case !w.holding:
		w.send(frame)
	case opcode == opSetWatches:
		w.send(frame)
		w.release()
	default:
		w.held = append(w.held, frame...)
	}
	return length, nil
}

// expect records a request, for its reply.
func (w *wire) expect(xid, opcode int32) {
	if xid < 0 {
		return // a ping, to which the reply is empty
	}
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	w.pending[xid] = opcode
}

// answers returns the opcode of the request that a reply is to. ok is false where
// there is none: go-zookeeper passes such a reply over.
func (w *wire) answers(xid int32) (opcode int32, ok bool) {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	opcode, ok = w.pending[xid]
	delete(w.pending, xid)
	return opcode, ok
}

func (w *wire) send(frame []byte) {
	w.writes.Add(1)
	if _, err := w.raw.Write(frame); err != nil {
		w.Close()
	}
}

// hold keeps requests back until the watches have been set again, or until it is clear that
// there are none.
func (w *wire) hold(most time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holding = true
	w.timer = time.AfterFunc(most, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.release()
	})
}

// release needs w.mu.
func (w *wire) release() {
	if !w.holding {
		return
	}
	w.holding = false
	w.timer.Stop()
	if len(w.held) > 0 {
		w.send(w.held)
		w.held = nil
	}
}

// stop ends the timer of a wire that has been closed.
func (w *wire) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *wire) Read(p []byte) (int, error) {
	if !w.shaken {
		if err := w.handshake(); err != nil {
			w.Close()
			w.link.failed(w, err)
			return 0, err
		}
		w.shaken = true
	}
	if len(w.ready) == 0 {
		if err := w.nextFrame(); err != nil {
			w.Close()
			return 0, err
		}
	}
	n := copy(p, w.ready)
	w.ready = w.ready[n:]
	return n, nil
}

func (w *wire) nextFrame() error {
	head, err := w.in.Peek(8)
	if err != nil {
		return err
	}
	length := int32(binary.BigEndian.Uint32(head))
	if length < 16 || length > maxReply {
		return fmt.Errorf("a reply of %d bytes", length)
	}
	if err := w.readFrame(headerSize + int(length)); err != nil {
		return err
	}
	_ = w.writes.Load()
	xid := int32(binary.BigEndian.Uint32(w.frame[headerSize:]))
	if xid == xidEvent {
		err = checkEvent(w.frame[headerSize:])
	} else if opcode, ok := w.answers(xid); ok {
		err = checkShape(opcode, w.frame[headerSize:])
	}
	if err != nil {
		return err
	}
	if int64(xid) == w.closeXid.Load() {
		w.link.sessionClosed.Store(true)
	}
	w.ready = w.frame
	return nil
}

// readFrame believes in a length only as the bytes come.
func (w *wire) readFrame(size int) error {
	const step, keep = 1 << 20, 64 << 10
	if cap(w.frame) > keep {
		w.frame = nil
	}
	w.frame = w.frame[:0]
	for len(w.frame) < size {
		begin := len(w.frame)
		n := min(step, size-begin)
		w.frame = slices.Grow(w.frame, n)[:begin+n]
		if _, err := io.ReadFull(w.in, w.frame[begin:]); err != nil {
			return err
		}
	}
	return nil
}

// reply is what the server says to a connect request.
type reply struct {
	timeout  time.Duration
	session  int64
	password []byte
}

func (w *wire) handshake() error {
	frame, err := w.readHandshake(replySize)
	if err != nil {
		return err
	}
	body := frame[headerSize:]
	if length := int32(binary.BigEndian.Uint32(body[16:])); length != 16 {
		return fmt.Errorf("a session's password of %d bytes", length)
	}
	r := reply{
		timeout:  time.Duration(int32(binary.BigEndian.Uint32(body[4:]))) * time.Millisecond,
		session:  int64(binary.BigEndian.Uint64(body[8:])),
		password: body[20:36],
	}
	if err := w.link.check(r); err != nil {
		return err
	}
	// A session that is attached again has logged in before, and has no time to lose: the answers come
	// before any other, and go-zookeeper passes them over.
	if err := w.login(w.link.sessionID() == 0); err != nil {
		return err
	}
	w.raw.SetDeadline(time.Time{})
	w.ready = frame
	return w.link.attach(w, r)
}

// login proves who this is before anything else is sent. It may wait for the answers.
func (w *wire) login(wait bool) error {
	logins := w.link.logins()
	var b []byte
	for _, auth := range logins {
		b = appendLogin(b, auth)
	}
	if len(b) == 0 {
		return nil
	}
	if _, err := w.raw.Write(b); err != nil {
		return err
	}
	if !wait {
		return nil
	}
	for range logins {
		frame, err := w.readHandshake(16)
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
func (w *wire) readHandshake(least int) ([]byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
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
	if _, err := io.ReadFull(w.in, frame[headerSize:]); err != nil {
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
