package zkconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// dialer makes the connections of one session. It implements zk.HostProvider
// and zk.Dialer.
type dialer struct {
	config Config
	hosts  []string // the hosts of config, in random order

	// Callbacks, which run on go-zookeeper's goroutines and must not block.
	onBegin  func(r connectReply, asked driver.Instant) error // when the session has begun
	onResume func(asked driver.Instant) error                 // when the session has reconnected
	onFail   func(error)                                      // when an attempt to connect has failed
	onEnd    func(error)                                      // when the session has ended, with the reason

	maxRequestPause time.Duration

	afterSend     sync.Map      // callbacks of Conn.AfterSend, by contents
	quit          chan struct{} // closed by close
	sessionClosed atomic.Bool   // whether the server has confirmed a close
	connections   atomic.Uint64 // number of finished handshakes
	round         atomic.Int64  // attempts in one pass over all addresses
	zxid          atomic.Int64  // zxid of the last reply

	mu       sync.Mutex
	closed   bool
	nextHost int                 // index in hosts
	known    map[string][]string // by host: addresses in dialling order
	attempts int                 // attempts to connect since a server's last answer
	conn     *frameConn
	attached bool          // from conn's handshake until conn fails
	ready    chan struct{} // closed while attached is true
	server   string        // last server that accepted the session
	session  int64
	password []byte
	timeout  time.Duration
	cancel   context.CancelFunc // ends the current dial
	lastErr  error              // error of the last attempt
	refused  int                // number of consecutive attempts with a permanent error
	fatal    chan struct{}      // closed when all addresses refuse
}

func newDialer(config Config) *dialer {
	d := &dialer{config: config, maxRequestPause: maxRequestPause, quit: make(chan struct{}), fatal: make(chan struct{}),
		known: make(map[string][]string), ready: make(chan struct{})}
	d.hosts = append(d.hosts, config.Hosts...)
	shuffle(d.hosts)
	d.round.Store(int64(len(d.hosts)))
	return d
}

func shuffle(s []string) { rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) }

// The methods of zk.HostProvider. Next returns names, which each dial resolves.

func (d *dialer) Init([]string) error { return nil }
func (d *dialer) Len() int            { return len(d.hosts) }
func (d *dialer) Connected()          {}

// Next returns the next host. If retryStart is true, go-zookeeper sleeps for a
// second and then checks whether its client was closed. Only a closed dialer
// needs that; otherwise dial itself pauses between attempts.
func (d *dialer) Next() (server string, retryStart bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	server = d.hosts[d.nextHost]
	d.nextHost = (d.nextHost + 1) % len(d.hosts)
	return server, d.closed
}

var (
	errDialerClosed = errors.New("zkdriver: the session has been closed")
	errExpired      = errors.New("the server has let the session expire")
	errMargin       = errors.New("lease_margin is more than half of the timeout that the server grants a session")
	errTick         = errors.New("tick_time is more than half of the timeout that the server grants a session")
)

// dial implements zk.Dialer.
func (d *dialer) dial(_, address string, _ time.Duration) (net.Conn, error) {
	attempt, err := d.pauseBeforeDial()
	if err != nil {
		return nil, err
	}
	timeout := d.attemptTimeout(attempt)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if !d.mayDial(cancel) {
		return nil, errDialerClosed
	}
	deadline := time.Now().Add(timeout)
	raw, err := d.connectTo(ctx, address)
	if err != nil {
		err = fmt.Errorf("%s: %w", address, err)
		d.recordFailure(nil, err)
		return nil, err
	}
	c := newFrameConn(raw, d, deadline)
	if !d.install(c) {
		raw.Close()
		return nil, errDialerClosed
	}
	return c, nil
}

func (d *dialer) redialInterval() time.Duration { return max(d.sessionTimeout()/40, firstBackOff) }

// pauseBeforeDial waits between attempts, to spare servers that are down or
// drop connections.
func (d *dialer) pauseBeforeDial() (attempt int, err error) {
	d.mu.Lock()
	attempt = d.attempts
	d.attempts++
	d.mu.Unlock()
	if wait := d.backOff(attempt); wait > 0 && closesWithin(d.quit, wait) {
		err = errDialerClosed
	}
	return attempt, err
}

const (
	firstBackOff = 25 * time.Millisecond
	maxBackOff   = time.Second
)

// backOff returns no pause for the first attempt at each address. Later pauses
// grow, but less while a session's lease is running out.
func (d *dialer) backOff(attempt int) time.Duration {
	n := attempt - int(d.round.Load())
	if n < 0 {
		return 0
	}
	most := min(maxBackOff, d.sessionTimeout()/10)
	if d.sessionID() != 0 {
		most = min(most, d.sessionTimeout()/40)
	}
	wait := min(firstBackOff<<min(n, 10), most)
	return wait/2 + rand.N(wait/2+1)
}

// attemptTimeout starts short, to try another server before the lease ends, and
// then doubles.
func (d *dialer) attemptTimeout(attempt int) time.Duration {
	const least, most = 100 * time.Millisecond, 2 * time.Second
	timeout := min(max(d.sessionTimeout()/8, least), most)
	return min(timeout<<min(attempt/int(d.round.Load()), 5), 5*time.Second)
}

func (d *dialer) sessionTimeout() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timeout > 0 {
		return d.timeout
	}
	return d.config.SessionTimeout
}

func (d *dialer) mayDial(cancel context.CancelFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel = cancel
	return !d.closed
}

func (d *dialer) install(c *frameConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.conn.stopTimer()
	}
	d.conn = c
	d.setAttached(false)
	return !d.closed
}

func (d *dialer) logins() [][]byte {
	if d.config.Logins == nil {
		return nil
	}
	return d.config.Logins()
}

// recordFailure implements connOwner. The connection is nil if none was made.
func (d *dialer) recordFailure(c *frameConn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c != nil {
		err = fmt.Errorf("%s: %w", c.raw.RemoteAddr(), err)
	}
	d.lastErr = err
	d.onFail(err)
	permanent := isAny(err, errLogin, errSpeaksTLS, errForeign, errMargin, errTick) || certificateRefused(err)
	if !permanent { // another attempt at the same host may succeed
		d.refused = 0
		return
	}
	if d.refused++; int64(d.refused) >= d.round.Load() {
		select {
		case <-d.fatal:
		default:
			close(d.fatal)
		}
	}
}

// checkReply implements connOwner. If the reply says that the session has
// expired, or is for another session, checkReply ends this session.
func (d *dialer) checkReply(r connectReply) error {
	d.mu.Lock()
	session, timeout, closed := d.session, d.timeout, d.closed
	d.mu.Unlock()
	var err error
	switch {
	case closed:
		return errDialerClosed
	case r.session == 0 || r.timeout <= 0:
		if session == 0 {
			return errors.New("the server gave no session")
		}
		err = errExpired
	case session != 0 && r.session != session:
		err = fmt.Errorf("the server answered for session %#x in place of %#x", r.session, session)
	case session != 0 && r.timeout < timeout:
		err = fmt.Errorf("the server shortened the session's timeout from %v to %v", timeout, r.timeout)
	}
	if err != nil {
		d.onEnd(err)
	}
	return err
}

// attach implements connOwner: it begins or resumes the session.
func (d *dialer) attach(c *frameConn, r connectReply) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.conn != c {
		return errDialerClosed
	}
	var err error
	if d.session == 0 {
		if err = d.onBegin(r, c.connectSent); err == nil {
			d.session, d.timeout = r.session, r.timeout
			d.password = append([]byte(nil), r.password...)
		}
	} else {
		err = d.onResume(c.connectSent)
	}
	if err != nil {
		return err
	}
	if d.connections.Add(1) > 1 && d.config.Events.Watching() {
		c.pauseRequests(min(d.maxRequestPause, r.timeout/16))
	}
	d.setAttached(true)
	d.refused, d.server = 0, c.raw.RemoteAddr().String()
	return nil
}

// setAttached keeps d.ready in step with d.attached. The caller holds d.mu.
func (d *dialer) setAttached(attached bool) {
	switch {
	case attached == d.attached:
		return
	case attached:
		close(d.ready)
	default:
		d.ready = make(chan struct{})
	}
	d.attached = attached
}

func (d *dialer) broken(c *frameConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == c {
		d.setAttached(false)
	}
}

// whenConnected returns a channel that is closed while the session is connected.
func (d *dialer) whenConnected() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ready
}

func (d *dialer) lastZxid() *atomic.Int64 { return &d.zxid }

func (d *dialer) sending(transaction []byte) {
	d.afterSend.Range(func(contents, run any) bool {
		if !bytes.Contains(transaction, []byte(contents.(string))) {
			return true
		}
		if _, there := d.afterSend.LoadAndDelete(contents); there {
			run.(func())()
		}
		return false
	})
}

func (d *dialer) closeConfirmed() { d.sessionClosed.Store(true) }

// resetBackOff makes the next reconnect start without a pause.
func (d *dialer) resetBackOff() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempts = 0
}

// giveUp closes a connection that is still current, so that go-zookeeper dials
// again.
func (d *dialer) giveUp(connection uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attached && d.connections.Load() == connection {
		d.setAttached(false)
		d.conn.Close()
	}
}

func (d *dialer) lastError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastErr
}

func (d *dialer) sessionID() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// FormatID formats a session id as ZooKeeper's own tools do.
func FormatID(session int64) string { return fmt.Sprintf("%#x", uint64(session)) }

func (d *dialer) describe() driver.SessionInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	return driver.SessionInfo{ID: FormatID(d.session), Server: d.server, Timeout: d.timeout, Margin: d.config.LeaseMargin}
}

// close keeps dials and handshakes in flight from reviving the session.
func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeLocked()
}

// closeUnlessBegun returns true, without closing, if the session has begun.
func (d *dialer) closeUnlessBegun() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == 0 {
		d.closeLocked()
	}
	return d.session != 0
}

func (d *dialer) closeLocked() {
	if d.closed {
		return
	}
	d.closed = true
	close(d.quit)
	if d.cancel != nil {
		d.cancel()
	}
	if d.conn != nil {
		d.conn.Close()
		d.conn.stopTimer()
	}
}
