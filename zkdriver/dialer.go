package zkdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// dialer makes the connections of one session and keeps watch that they are all of that session.
// It is the HostProvider and the Dialer of go-zookeeper, which asks for one host and dials it,
// over and over.
type dialer struct {
	settings *settings
	secret   secret
	tls      *tls.Config
	hosts    []string // shuffled

	// Set before use. They are called on goroutines of go-zookeeper and must not block.
	onBegin    func(r connectReply, asked driver.Instant) error // the session exists
	onResume   func(asked driver.Instant) error                 // it was attached again
	onEnd      func(error)                                      // it has ended
	hasWatches func() bool                                      // whether there are watches to be set again

	sendHooks prefetches

	quit          chan struct{} // closed by close
	sessionClosed atomic.Bool   // the server has confirmed the end of the session
	connections   atomic.Uint64 // the number of handshakes

	mu       sync.Mutex
	closed   bool
	next     int // index into hosts
	attempts int // since a request was answered
	conn     *frameConn
	attached bool   // wire has finished its handshake and not failed since
	server   string // the address of the last server that accepted the session
	session  int64
	password []byte
	timeout  time.Duration
	cancel   context.CancelFunc // ends the present dial
	lastErr  error              // of the last attempt
	refusals int                // attempts in a row that another try will not mend
	fatal    chan struct{}      // closed when every host has refused
}

func newDialer(s *settings, x secret, t *tls.Config) *dialer {
	l := &dialer{settings: s, secret: x, tls: t, quit: make(chan struct{}), fatal: make(chan struct{})}
	l.hosts = append(l.hosts, s.hosts...)
	rand.Shuffle(len(l.hosts), func(i, j int) { l.hosts[i], l.hosts[j] = l.hosts[j], l.hosts[i] })
	return l
}

// logins returns under which names of the digest scheme to log in.
func (d *dialer) logins() [][]byte {
	var all [][]byte
	if user := d.settings.auth(); user != nil {
		all = append(all, user)
	}
	if d.secret.set() {
		all = append(all, d.secret.auth())
	}
	return all
}

// Init, Len, Next and Connected make link a zk.HostProvider. Names are handed out, not
// addresses, so that they are resolved for every dial.

func (d *dialer) Init([]string) error { return nil }
func (d *dialer) Len() int            { return len(d.hosts) }
func (d *dialer) Connected()          {}

// Next says retryStart, which makes go-zookeeper pause for a second and look whether it has
// been closed, only once it has been: before, dial does the pausing.
func (d *dialer) Next() (server string, retryStart bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	server = d.hosts[d.next]
	d.next = (d.next + 1) % len(d.hosts)
	return server, d.closed
}

var errDialerClosed = errors.New("zkdriver: the session has been closed")

// dial is the zk.Dialer.
func (d *dialer) dial(_, address string, _ time.Duration) (net.Conn, error) {
	attempt, err := d.pauseBeforeDial()
	if err != nil {
		return nil, err
	}
	patience := d.attemptTimeout(attempt)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !d.mayDial(cancel) {
		return nil, errDialerClosed
	}
	deadline := time.Now().Add(patience)
	raw, err := connectTo(ctx, address, d.tls, d.redialInterval())
	if err != nil {
		err = fmt.Errorf("%s: %w", address, err)
		d.recordFailure(nil, err)
		return nil, err
	}
	w := newFrameConn(raw, d, deadline)
	if !d.install(w) {
		raw.Close()
		return nil, errDialerClosed
	}
	return w, nil
}

// connectTo connects to a server, with TLS unless config is nil. It dials once
// more whenever the time again has passed.
func connectTo(ctx context.Context, address string, config *tls.Config, again time.Duration) (net.Conn, error) {
	var d net.Dialer
	raw, err := dialAgain(ctx, again, func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) })
	if err != nil || config == nil {
		return raw, err
	}
	secure := tls.Client(raw, tlsFor(config, address))
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		var notTLS tls.RecordHeaderError
		if errors.Is(err, io.EOF) || errors.As(err, &notTLS) {
			return nil, fmt.Errorf("TLS: %w (the port may be a plain one)", err)
		}
		return nil, fmt.Errorf("TLS: %w", printableError{err}) // it may repeat what a certificate says
	}
	return secure, nil
}

// dialAgain dials, and dials once more beside that whenever every has passed. The
// first connection that is made is taken. While a network drops what it is given,
// the system repeats the request of one dial after 1 s, 3 s and 7 s, which may be
// long after the network is back.
func dialAgain(ctx context.Context, every time.Duration, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	var dials sync.WaitGroup
	defer dials.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type dialed struct {
		conn net.Conn
		err  error
	}
	results := make(chan dialed)
	once := func() {
		conn, err := dial(ctx)
		select {
		case results <- dialed{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				conn.Close()
			}
		}
	}
	dials.Go(once)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case r := <-results:
			return r.conn, r.err
		case <-ctx.Done():
			return nil, fmt.Errorf("no connection: %w", ctx.Err())
		case <-ticker.C:
			dials.Go(once)
		}
	}
}

// redialInterval is the time between two dials to a host that does not answer.
func (d *dialer) redialInterval() time.Duration { return max(d.sessionTimeout()/40, firstBackOff) }

// pauseBeforeDial waits before every attempt but the first ones, one for each host: servers that are
// down, or that take connections and drop them, are not to be hammered.
func (d *dialer) pauseBeforeDial() (attempt int, err error) {
	d.mu.Lock()
	attempt = d.attempts
	d.attempts++
	d.mu.Unlock()
	wait := d.backOff(attempt)
	if wait == 0 {
		return attempt, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return attempt, nil
	case <-d.quit:
		return attempt, errDialerClosed
	}
}

const (
	firstBackOff = 25 * time.Millisecond
	maxBackOff   = time.Second
)

// backOff doubles with each attempt after the first for each host, up to a
// tenth of the session timeout, with jitter. A session that exists has no time
// to lose: there it goes up to a fortieth.
func (d *dialer) backOff(attempt int) time.Duration {
	n := attempt - len(d.hosts)
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

// attemptTimeout is how long one attempt may take, handshake included: short, so that one host that
// hangs does not cost the session, but longer with each round through the hosts, so that a slow
// store is reached in the end.
func (d *dialer) attemptTimeout(attempt int) time.Duration {
	const least, most = 100 * time.Millisecond, 2 * time.Second
	timeout := min(max(d.sessionTimeout()/8, least), most)
	return min(timeout<<min(attempt/len(d.hosts), 5), 5*time.Second)
}

// sessionTimeout is the session's timeout: what was granted, or else what will be asked for.
func (d *dialer) sessionTimeout() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timeout > 0 {
		return d.timeout
	}
	return d.settings.sessionTimeout
}

func (d *dialer) mayDial(cancel context.CancelFunc) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel = cancel
	return !d.closed
}

func (d *dialer) install(w *frameConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.conn.stopTimer()
	}
	d.conn, d.attached = w, false
	return !d.closed
}

// recordFailure takes down why an attempt failed. Errors of a wire that worked once are no failed
// attempts.
func (d *dialer) recordFailure(w *frameConn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w != nil {
		err = fmt.Errorf("%s: %w", w.raw.RemoteAddr(), err)
	}
	d.lastErr = err
	if !permanentDialError(err) {
		d.refusals = 0
		return
	}
	if d.refusals++; d.refusals == len(d.hosts) {
		select {
		case <-d.fatal:
		default:
			close(d.fatal)
		}
	}
}

// permanentDialError tells whether another try at the same host would fail the same way.
func permanentDialError(err error) bool {
	for _, e := range []error{errLogin, errSpeaksTLS, errForeign, errMargin, errTick} {
		if errors.Is(err, e) {
			return true
		}
	}
	return certificateRefused(err)
}

// checkReply looks whether a connect reply is of this session. The first one begins it.
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

// attach takes the wire into use: its server has accepted the session, and so has the leader,
// which a server asks before it does.
func (d *dialer) attach(w *frameConn, r connectReply) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.conn != w {
		return errDialerClosed
	}
	var err error
	if d.session == 0 {
		if err = d.onBegin(r, w.connectSent); err == nil {
			d.session, d.timeout = r.session, r.timeout
			d.password = append([]byte(nil), r.password...)
		}
	} else {
		err = d.onResume(w.connectSent)
	}
	if err != nil {
		return err
	}
	if d.connections.Add(1) > 1 && d.hasWatches() {
		w.pauseRequests(min(maxRequestPause, r.timeout/16))
	}
	d.attached, d.refusals, d.server = true, 0, w.raw.RemoteAddr().String()
	return nil
}

// resetBackOff ends the back-off: this connection is good.
func (d *dialer) resetBackOff() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attempts = 0
}

// closeConnection closes the connection of that generation, if it is still in use: go-zookeeper will make
// another one.
func (d *dialer) closeConnection(generation uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attached && d.connections.Load() == generation {
		d.attached = false
		d.conn.Close()
	}
}

// lastError returns why the last attempt failed, or nil.
func (d *dialer) lastError() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lastErr
}

// sessionID returns 0 before the session has begun.
func (d *dialer) sessionID() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session
}

// describe returns what Session.Describe does.
func (d *dialer) describe() driver.SessionInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	return driver.SessionInfo{ID: FormatID(d.session), Server: d.server, Timeout: d.timeout}
}

// close ends the connection, and makes it the last one: nothing that go-zookeeper may have
// begun can bring the session back.
func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closeLocked()
}

// closeUnlessBegun closes a link whose session has not begun, so that it never does. It reports
// whether the session has.
func (d *dialer) closeUnlessBegun() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == 0 {
		d.closeLocked()
	}
	return d.session != 0
}

// closeLocked needs l.mu.
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
