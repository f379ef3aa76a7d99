package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

var (
	errExpired = errors.New("the server has let the session expire")
	errClosed  = errors.New("closed")
	errMargin  = errors.New("lease_margin is more than half of the timeout that the server grants a session")
	errTick    = errors.New("tick_time is more than half of the timeout that the server grants a session")
)

// session is one session of ZooKeeper, on one zk.Conn. When either ends, both do.
//
// Its goroutines: one that keeps it alive and takes it down in the end, workers
// that run prefetches and the requests of callers that can go away, one that
// removes orphans, if there are any, and those of go-zookeeper. The first waits
// for all others.
type session struct {
	settings  *settings
	secret    secret
	dialer    *dialer
	conn      *zk.Conn
	events    <-chan zk.Event
	lease     *driver.Lease // set with beats when the session begins
	keepalive *keepalive

	workers        workers
	watches        watches
	own            ownNodes
	queues         queueCache
	prefetchPolicy prefetchPolicy
	orphans        orphans

	containers    chan struct{} // a lock, see makeContainer
	hasSession    chan struct{}
	hasSessionOne sync.Once

	finished     chan struct{}      // closed by supervise
	closes       singleflight.Group // concurrent calls of Close share one try
	endedInStore bool               // the server has confirmed the end; belongs to closes
	endAttempts  int                // to end it in the store; belongs to closes
}

var (
	_ driver.Session    = (*session)(nil)
	_ driver.Replacer   = (*session)(nil)
	_ driver.NodeReader = (*session)(nil)
	_ driver.Walker     = (*session)(nil)

	_ driver.Describer = (*session)(nil)
)

// connect begins a session and waits until the server has confirmed it.
func connect(ctx context.Context, settings *settings) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("zkdriver: connect: %w", err)
	}
	secure, err := settings.loadTLS()
	if err != nil {
		return nil, err
	}
	secret := settings.newSecret()
	s := &session{settings: settings, secret: secret, dialer: newDialer(settings, secret, secure),
		containers: make(chan struct{}, 1),
		hasSession: make(chan struct{}), finished: make(chan struct{})}
	s.dialer.onBegin, s.dialer.onResume, s.dialer.onEnd = s.began, s.resumed, s.end
	s.dialer.hasWatches = s.watches.any
	s.watches.session = s
	s.conn, s.events, err = zk.Connect(settings.hosts, settings.sessionTimeout,
		zk.WithDialer(s.dialer.dial), zk.WithHostProvider(s.dialer), zk.WithEventCallback(s.event),
		zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("zkdriver: connect: %w", err)
	}
	if err := s.awaitSession(ctx); err != nil {
		s.abandon()
		return nil, err
	}
	go s.supervise()
	return s, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (s *session) awaitSession(ctx context.Context) error {
	timer := time.NewTimer(s.settings.connectTimeout)
	defer timer.Stop()
	select {
	case <-s.hasSession:
		if err := s.lease.Err(); err != nil {
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zkdriver: connect: %w: no session with %s%s", ctx.Err(), strings.Join(s.settings.hosts, ","), s.lastAttempt())
	case <-s.dialer.fatal:
		return fmt.Errorf("zkdriver: connect: %w", s.dialer.lastError())
	case <-timer.C:
		return fmt.Errorf("zkdriver: connect: %w: no session with %s within %v%s",
			driver.ErrUnavailable, strings.Join(s.settings.hosts, ","), s.settings.connectTimeout, s.lastAttempt())
	}
}

func (s *session) lastAttempt() string {
	if err := s.dialer.lastError(); err != nil {
		return fmt.Sprintf(" (last try: %v)", err)
	}
	return ""
}

// began and resumed run on go-zookeeper's goroutine, in the handshake.

func (s *session) began(r connectReply, asked driver.Instant) error {
	margin := s.settings.leaseMargin
	if margin == 0 {
		margin = r.timeout / 4
	}
	if margin > r.timeout/2 {
		return fmt.Errorf("%w: half of %v", errMargin, r.timeout)
	}
	if s.settings.tick > r.timeout/2 {
		return fmt.Errorf("%w: half of %v", errTick, r.timeout)
	}
	s.lease = driver.NewLease(r.timeout, margin)
	s.lease.Renew(asked)
	s.keepalive = newKeepalive(newSchedule(r.timeout, margin, s.settings.tick, len(s.settings.hosts)), s.lease, s.own.duty)
	s.keepalive.connected(asked, driver.Now())
	return s.lease.Err()
}

func (s *session) resumed(asked driver.Instant) error {
	// Not for a session that is being closed, either: go-zookeeper would set its watches again
	// while it takes itself down, which it cannot do without a data race. See leave.
	if err := s.lease.Err(); err != nil {
		return err
	}
	s.keepalive.connected(asked, s.lease.Now())
	return nil
}

// event is called by go-zookeeper for everything that happens. It must not block.
func (s *session) event(e zk.Event) {
	switch e.Type {
	case zk.EventSession:
		switch e.State {
		case zk.StateHasSession:
			s.hasSessionOne.Do(func() { close(s.hasSession) })
		case zk.StateDisconnected:
			if s.keepalive != nil {
				s.keepalive.disconnected()
			}
			s.watches.disconnected()
		case zk.StateExpired:
			s.end(errExpired)
		case zk.StateAuthFailed:
			s.end(errLogin)
		}
	case zk.EventNotWatching:
		s.watches.close()
	case zk.EventNodeDataChanged:
		s.watches.written(e.Path)
	case zk.EventNodeDeleted:
		if queue, name, ok := s.settings.splitPath(e.Path); ok {
			s.own.nodeGone(queue, name, s.own.createdSoFar())
		}
		s.watches.fire(e.Path, driver.Changed)
	default:
		s.watches.fire(e.Path, driver.Changed)
	}
}

// end ends the session here: supervise sees to the rest.
func (s *session) end(cause error) {
	if s.lease != nil {
		s.lease.End(fmt.Errorf("zkdriver: %w: %w", driver.ErrSessionEnded, cause))
	}
}

func (s *session) Done() <-chan struct{} { return s.lease.Done() }
func (s *session) Err() error            { return s.lease.Err() }

// Describe implements driver.Describer. It does not show the session's password.
func (s *session) Describe() driver.SessionInfo { return s.dialer.describe() }

// Close implements driver.Session. A session whose lease has run out here may
// live on in the store, so it is ended there all the same.
func (s *session) Close() error {
	s.end(errClosed)
	<-s.finished
	_, err, _ := s.closes.Do("", func() (any, error) { return nil, s.endInStore() })
	return err
}

// supervise keeps the session alive until it ends and takes everything down
// here then, also when Close is never called.
func (s *session) supervise() {
	defer close(s.finished)
	s.keepalive.run(s.heartbeat, s.dialer.closeConnection)
	s.watches.close()
	s.shutDown()
	s.workers.close()
}

// abandon takes down what has not become a session that anybody uses. Most often that takes no
// time; but go-zookeeper waits for a second where a server hangs in the handshake. It does so
// without the caller then.
func (s *session) abandon() {
	if s.dialer.closeUnlessBegun() {
		s.end(errClosed)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.shutDown()
		s.endInStore()
		s.workers.close()
	}()
	timer := time.NewTimer(abandonWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

const (
	// abandonWait bounds how much later Connect returns than its ctx ends.
	abandonWait = 25 * time.Millisecond
	// closeTimeout bounds how long the server may take to confirm the end of the session.
	closeTimeout = 2 * time.Second
	// maxCloseTimeout bounds it after attempts that have failed.
	maxCloseTimeout = 5 * time.Second
	// exitTimeout bounds the wait for go-zookeeper's goroutines after that.
	exitTimeout = 2 * time.Second
)

// shutDown ends go-zookeeper and the connection for good. Where that is because
// of a Close, it ends the session in the store, too, if the connection allows it.
func (s *session) shutDown() {
	if s.dialer.sessionID() != 0 && !errors.Is(s.lease.Err(), errClosed) {
		// The session has ended without a Close, so its holders may not know yet.
		// Until Close is called the store is not to let go of the nodes any earlier
		// than by itself.
		s.dialer.close()
	}
	s.awaitContainer()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.conn.Close()
		s.dialer.close() // else a handshake that is under way brings the session back
		for range s.events {
		} // closed when go-zookeeper's last goroutine goes
	}()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
		s.dialer.close() // which ends conn.Close, too
		timer.Reset(exitTimeout)
		select {
		case <-closed:
		case <-timer.C:
		}
	}
}

// endInStore makes sure that the session has ended in the store. Unless that is known
// it says so on a connection of its own: the one of go-zookeeper is gone by then.
func (s *session) endInStore() error {
	if s.endedInStore || s.dialer.sessionID() == 0 || s.dialer.sessionClosed.Load() || errors.Is(s.lease.Err(), errExpired) {
		return nil
	}
	// An attempt that a server has heard of keeps the session for another timeout.
	// So the next one takes longer, until the answers have time to come.
	patience := min(closeTimeout<<min(s.endAttempts, 2), maxCloseTimeout)
	s.endAttempts++
	if err := s.dialer.endSession(patience); err != nil {
		return fmt.Errorf("zkdriver: close: %w: no server has confirmed the end of session %#x: its nodes stay, and block others, until the store lets it expire, at most %v after a server has heard of it last: %w",
			driver.ErrUnavailable, uint64(s.dialer.sessionID()), s.dialer.sessionTimeout(), err)
	}
	s.endedInStore = true
	return nil
}
