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

// link makes the connections of one session and keeps watch that they are all of that session.
// It is the HostProvider and the Dialer of go-zookeeper, which asks for one host and dials it,
// over and over.
type link struct {
	settings *settings
	secret   secret
	tls      *tls.Config
	hosts    []string // shuffled

	// Set before use. They are called on goroutines of go-zookeeper and must not block.
	began    func(r reply, asked driver.Instant) error // the session exists
	resumed  func(asked driver.Instant) error          // it was attached again
	over     func(error)                               // it has ended
	watching func() bool                               // whether there are watches to be set again

	prefetches prefetches

	quit          chan struct{} // closed by close
	sessionClosed atomic.Bool   // the server has confirmed the end of the session
	generation    atomic.Uint64 // the number of handshakes

	mu       sync.Mutex
	closed   bool
	next     int // index into hosts
	attempts int // since a request was answered
	wire     *wire
	attached bool   // wire has finished its handshake and not failed since
	server   string // the address of the last server that accepted the session
	session  int64
	password []byte
	timeout  time.Duration
	cancel   context.CancelFunc // ends the present dial
	lastErr  error              // of the last attempt
	refused  int                // attempts in a row that another try will not mend
	fatal    chan struct{}      // closed when every host has refused
}

func newLink(s *settings, x secret, t *tls.Config) *link {
	l := &link{settings: s, secret: x, tls: t, quit: make(chan struct{}), fatal: make(chan struct{})}
	l.hosts = append(l.hosts, s.hosts...)
	rand.Shuffle(len(l.hosts), func(i, j int) { l.hosts[i], l.hosts[j] = l.hosts[j], l.hosts[i] })
	return l
}

// logins returns under which names of the digest scheme to log in.
func (l *link) logins() [][]byte {
	var all [][]byte
	if user := l.settings.auth(); user != nil {
		all = append(all, user)
	}
	if l.secret.set() {
		all = append(all, l.secret.auth())
	}
	return all
}

// Init, Len, Next and Connected make link a zk.HostProvider. Names are handed out, not
// addresses, so that they are resolved for every dial.

func (l *link) Init([]string) error { return nil }
func (l *link) Len() int            { return len(l.hosts) }
func (l *link) Connected()          {}

// Next says retryStart, which makes go-zookeeper pause for a second and look whether it has
// been closed, only once it has been: before, dial does the pausing.
func (l *link) Next() (server string, retryStart bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	server = l.hosts[l.next]
	l.next = (l.next + 1) % len(l.hosts)
	return server, l.closed
}

var errLinkClosed = errors.New("zkdriver: the session has been closed")

// dial is the zk.Dialer.
func (l *link) dial(_, address string, _ time.Duration) (net.Conn, error) {
	attempt, err := l.pause()
	if err != nil {
		return nil, err
	}
	patience := l.patience(attempt)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !l.mayDial(cancel) {
		return nil, errLinkClosed
	}
	deadline := time.Now().Add(patience)
	raw, err := connectTo(ctx, address, l.tls, l.redial())
	if err != nil {
		err = fmt.Errorf("%s: %w", address, err)
		l.failed(nil, err)
		return nil, err
	}
	w := newWire(raw, l, deadline)
	if !l.install(w) {
		raw.Close()
		return nil, errLinkClosed
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

// redial is the time between two dials to a host that does not answer.
func (l *link) redial() time.Duration { return max(l.lifetime()/40, firstBackOff) }

// pause waits before every attempt but the first ones, one for each host: servers that are
// down, or that take connections and drop them, are not to be hammered.
func (l *link) pause() (attempt int, err error) {
	l.mu.Lock()
	attempt = l.attempts
	l.attempts++
	l.mu.Unlock()
	wait := l.backOff(attempt)
	if wait == 0 {
		return attempt, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return attempt, nil
	case <-l.quit:
		return attempt, errLinkClosed
	}
}

const (
	firstBackOff = 25 * time.Millisecond
	maxBackOff   = time.Second
)

// backOff doubles with each attempt after the first for each host, up to a
// tenth of the session timeout, with jitter. A session that exists has no time
// to lose: there it goes up to a fortieth.
func (l *link) backOff(attempt int) time.Duration {
	n := attempt - len(l.hosts)
	if n < 0 {
		return 0
	}
	most := min(maxBackOff, l.lifetime()/10)
	if l.sessionID() != 0 {
		most = min(most, l.lifetime()/40)
	}
	d := min(firstBackOff<<min(n, 10), most)
	return d/2 + rand.N(d/2+1)
}

// patience is how long one attempt may take, handshake included: short, so that one host that
// hangs does not cost the session, but longer with each round through the hosts, so that a slow
// store is reached in the end.
func (l *link) patience(attempt int) time.Duration {
	const least, most = 100 * time.Millisecond, 2 * time.Second
	d := min(max(l.lifetime()/8, least), most)
	return min(d<<min(attempt/len(l.hosts), 5), 5*time.Second)
}

// lifetime is the session's timeout: what was granted, or else what will be asked for.
func (l *link) lifetime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timeout > 0 {
		return l.timeout
	}
	return l.settings.sessionTimeout
}

func (l *link) mayDial(cancel context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel = cancel
	return !l.closed
}

func (l *link) install(w *wire) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wire != nil {
		l.wire.stop()
	}
	l.wire, l.attached = w, false
	return !l.closed
}

// failed takes down why an attempt failed. Errors of a wire that worked once are no failed
// attempts.
func (l *link) failed(w *wire, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w != nil {
		err = fmt.Errorf("%s: %w", w.raw.RemoteAddr(), err)
	}
	l.lastErr = err
	if !hopeless(err) {
		l.refused = 0
		return
	}
	if l.refused++; l.refused == len(l.hosts) {
		select {
		case <-l.fatal:
		default:
			close(l.fatal)
		}
	}
}

// hopeless tells whether another try at the same host would fail the same way.
func hopeless(err error) bool {
	for _, e := range []error{errLogin, errSpeaksTLS, errForeign, errMargin, errTick} {
		if errors.Is(err, e) {
			return true
		}
	}
	return refusal(err)
}

// check looks whether a connect reply is of this session. The first one begins it.
func (l *link) check(r reply) error {
	l.mu.Lock()
	session, timeout, closed := l.session, l.timeout, l.closed
	l.mu.Unlock()
	var err error
	switch {
	case closed:
		return errLinkClosed
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
		l.over(err)
	}
	return err
}

// attach takes the wire into use: its server has accepted the session, and so has the leader,
// which a server asks before it does.
func (l *link) attach(w *wire, r reply) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.wire != w {
		return errLinkClosed
	}
	var err error
	if l.session == 0 {
		if err = l.began(r, w.asked); err == nil {
			l.session, l.timeout = r.session, r.timeout
			l.password = append([]byte(nil), r.password...)
		}
	} else {
		err = l.resumed(w.asked)
	}
	if err != nil {
		return err
	}
	if l.generation.Add(1) > 1 && l.watching() {
		w.hold(min(maxHold, r.timeout/16))
	}
	l.attached, l.refused, l.server = true, 0, w.raw.RemoteAddr().String()
	return nil
}

// answered ends the back-off: this connection is good.
func (l *link) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts = 0
}

// cut closes the connection of that generation, if it is still in use: go-zookeeper will make
// another one.
func (l *link) cut(generation uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attached && l.generation.Load() == generation {
		l.attached = false
		l.wire.Close()
	}
}

// lastError returns why the last attempt failed, or nil.
func (l *link) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastErr
}

// sessionID returns 0 before the session has begun.
func (l *link) sessionID() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// describe returns what Session.Describe does.
func (l *link) describe() driver.SessionInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	return driver.SessionInfo{ID: ownerName(l.session), Server: l.server, Timeout: l.timeout}
}

// close ends the connection, and makes it the last one: nothing that go-zookeeper may have
// begun can bring the session back.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut()
}

// closeUnlessBegun closes a link whose session has not begun, so that it never does. It reports
// whether the session has.
func (l *link) closeUnlessBegun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == 0 {
		l.shut()
	}
	return l.session != 0
}

// shut needs l.mu.
func (l *link) shut() {
	if l.closed {
		return
	}
	l.closed = true
	close(l.quit)
	if l.cancel != nil {
		l.cancel()
	}
	if l.wire != nil {
		l.wire.Close()
		l.wire.stop()
	}
}
