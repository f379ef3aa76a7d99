package zkconn

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

// Config configures a session. LeaseMargin, Tick, TLS and Logins are optional.
type Config struct {
	Hosts          []string      // "host:port"; an IPv6 address in brackets
	SessionTimeout time.Duration // requested; the server may grant another one
	ConnectTimeout time.Duration // how long Dial tries
	// LeaseMargin is how long before the session the lease ends. Zero means a
	// quarter of the granted timeout.
	LeaseMargin time.Duration
	Tick        time.Duration // the ensemble's tickTime; 0: unknown

	TLS TLS

	// Logins returns the session's digest logins, each as "user:password".
	// It is a function so that printing a Config reveals no password.
	Logins func() [][]byte

	// HasNodes reports whether the session has nodes. If it has none, answered
	// Syncs renew the lease; otherwise only answered writes do: see keepalive.
	// HasNodes is called often, from any goroutine, and must not block.
	HasNodes func() bool

	Events Events

	lookUp func(ctx context.Context, name string) ([]string, error) // for tests; nil: the system's resolver
}

func (c Config) resolve(ctx context.Context, name string) ([]string, error) {
	if c.lookUp != nil {
		return c.lookUp(ctx, name)
	}
	return net.DefaultResolver.LookupHost(ctx, name)
}

// Events receives watch events and changes of the session. Its methods may be
// called before Dial returns, and must not block.
type Events interface {
	// Changed reports that the watch of a path has fired. Calls of Changed
	// and Disconnected are serialized, in the order of events.
	Changed(path string, change Change)

	// Disconnected reports that the connection has broken. It is called before
	// any call of Changed for events of the next connection.
	Disconnected()

	// Ended reports that the session has ended, and with it all watches. It may
	// be called several times.
	Ended()

	// Watching reports whether the server may hold watches of the session. If
	// so, requests sent after a reconnect are delayed until go-zookeeper has
	// set the watches again.
	Watching() bool
}

// Change says what has happened to a watched node.
type Change int

const (
	Other   Change = iota // the node was created or its children changed
	Written               // the node's data was written
	Deleted
)

// Conn is one ZooKeeper session, on one zk.Conn. When either ends, so does the
// other. All methods are safe for concurrent use.
//
// A supervisor goroutine sends heartbeats and finally shuts the Conn down,
// waiting for all its other goroutines.
type Conn struct {
	config    Config
	dialer    *dialer
	client    *zk.Conn
	events    <-chan zk.Event
	lease     *driver.Lease // nil until the session begins, like keepalive
	keepalive *keepalive
	workers   workers

	containers    *semaphore.Weighted // limits the concurrent calls of CreateContainer
	hasSession    chan struct{}       // closed when go-zookeeper has a session
	hasSessionOne sync.Once

	finished    chan struct{}      // closed when the Conn has shut down
	closes      singleflight.Group // concurrent calls of Close share one attempt
	endedThere  bool               // the session's end is confirmed; guarded by closes
	endAttempts int                // attempts in the store; guarded by closes
}

// Lease returns the session's lease, whose error says why the session has
// ended. If a caller ends the lease, the Conn shuts down but leaves the session
// in the store.
func (c *Conn) Lease() *driver.Lease { return c.lease }

// Finished returns a channel that is closed when the session has ended and the
// Conn has released its resources, whether or not Close was called.
func (c *Conn) Finished() <-chan struct{} { return c.finished }

func (c *Conn) SessionID() int64 { return c.dialer.sessionID() }

// Connection returns the connection's number, which grows with each reconnect.
func (c *Conn) Connection() uint64 { return c.keepalive.connection() }

// Describe returns what is known of the session, except its password.
func (c *Conn) Describe() driver.SessionInfo { return c.dialer.describe() }

// Outage returns kept, the shortest time for which a holder that is cut off
// keeps its locks, and survived, the longest outage that never costs a lock.
// Both assume that round trips take as long as they did lately.
func (c *Conn) Outage() (kept, survived time.Duration) { return c.keepalive.outage() }

// failed passes an error to the lease, which quotes it if the lease runs out.
func (c *Conn) failed(err error) {
	if c.lease != nil {
		c.lease.Failed(err)
	}
}

// end ends the lease, which makes the supervisor shut the Conn down.
func (c *Conn) end(cause error) {
	if c.lease != nil {
		c.lease.End(fmt.Errorf("zkdriver: %w: %w", driver.ErrSessionEnded, cause))
	}
}

// Dial begins a session and waits for the server to confirm it, at most for
// Config.ConnectTimeout. If ctx ends first, the error matches that of ctx. Any
// other error matches driver.ErrUnavailable if another attempt may succeed.
// After an error, Dial closes any session that it has begun. If no server
// confirms that, the session may live on until its timeout.
func Dial(ctx context.Context, config Config) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("zkdriver: connect: %w", err)
	}
	if _, err := config.TLS.Load(); err != nil { // fail now rather than retry until ConnectTimeout
		return nil, err
	}
	c := &Conn{config: config, dialer: newDialer(config), containers: semaphore.NewWeighted(maxContainers),
		hasSession: make(chan struct{}), finished: make(chan struct{})}
	c.dialer.onBegin, c.dialer.onResume, c.dialer.onFail, c.dialer.onEnd = c.begin, c.resume, c.failed, c.end
	var err error
	c.client, c.events, err = zk.Connect(config.Hosts, config.SessionTimeout,
		zk.WithDialer(c.dialer.dial), zk.WithHostProvider(c.dialer), zk.WithEventCallback(c.event),
		zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("zkdriver: connect: %w", err)
	}
	if err := c.awaitSession(ctx); err != nil {
		c.abandon()
		return nil, err
	}
	go c.supervise()
	return c, nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (c *Conn) awaitSession(ctx context.Context) error {
	timer := time.NewTimer(c.config.ConnectTimeout)
	defer timer.Stop()
	hosts := strings.Join(c.config.Hosts, ",")
	select {
	case <-c.hasSession:
		if err := c.lease.Err(); err != nil {
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zkdriver: connect: %w: no session with %s%s", ctx.Err(), hosts, c.lastAttempt())
	case <-c.dialer.fatal:
		return fmt.Errorf("zkdriver: connect: %w", c.dialer.lastError())
	case <-timer.C:
		return fmt.Errorf("zkdriver: connect: %w: no session with %s within %v%s",
			driver.ErrUnavailable, hosts, c.config.ConnectTimeout, c.lastAttempt())
	}
}

func (c *Conn) lastAttempt() string {
	if err := c.dialer.lastError(); err != nil {
		return fmt.Sprintf(" (last try: %v)", err)
	}
	return ""
}

// The dialer calls begin and resume during the handshake, on a goroutine of
// go-zookeeper.

func (c *Conn) begin(r connectReply, asked driver.Instant) error {
	margin := c.config.LeaseMargin
	if margin == 0 {
		margin = r.timeout / 4
	}
	if margin > r.timeout/2 {
		return fmt.Errorf("%w: half of %v", errMargin, r.timeout)
	}
	if c.config.Tick > r.timeout/2 {
		return fmt.Errorf("%w: half of %v", errTick, r.timeout)
	}
	c.lease = driver.NewLease(r.timeout, margin)
	c.lease.Renew(asked)
	c.keepalive = newKeepalive(newSchedule(r.timeout, margin, c.config.Tick, int(c.dialer.round.Load())), c.lease, c.config.HasNodes)
	c.keepalive.connected(asked, driver.Now())
	return c.lease.Err()
}

func (c *Conn) resume(asked driver.Instant) error {
	// Resuming after the lease's end would cause a data race in go-zookeeper.
	if err := c.lease.Err(); err != nil {
		return err
	}
	c.keepalive.addressesAre(int(c.dialer.round.Load()))
	c.keepalive.connected(asked, c.lease.Now())
	return nil
}

func (c *Conn) event(e zk.Event) {
	switch e.Type {
	case zk.EventSession:
		c.sessionEvent(e.State)
	case zk.EventNotWatching:
		c.config.Events.Ended()
	case zk.EventNodeDataChanged:
		c.config.Events.Changed(e.Path, Written)
	case zk.EventNodeDeleted:
		c.config.Events.Changed(e.Path, Deleted)
	default:
		c.config.Events.Changed(e.Path, Other)
	}
}

func (c *Conn) sessionEvent(state zk.State) {
	switch state {
	case zk.StateHasSession:
		c.hasSessionOne.Do(func() { close(c.hasSession) })
	case zk.StateDisconnected:
		if c.keepalive != nil {
			c.keepalive.disconnected()
		}
		c.config.Events.Disconnected()
	case zk.StateExpired:
		c.end(errExpired)
	case zk.StateAuthFailed:
		c.end(errLogin)
	}
}

// supervise sends heartbeats until the session ends. It then shuts down.
func (c *Conn) supervise() {
	defer close(c.finished)
	c.keepalive.run(c.sendHeartbeat, c.dialer.giveUp)
	c.config.Events.Ended()
	c.shutDown()
	c.workers.close()
}
