package zkconn

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/semaphore"

	"github.com/dlock-go/dlock/driver"
)

// Dial begins a session and waits for the server to confirm it, at most for
// Config.ConnectTimeout. If ctx ends first, the error matches that of ctx. Any
// other error matches driver.ErrUnavailable if another attempt may succeed.
// After an error, Dial closes the session that it may have begun; if the server
// does not answer that request, the server may keep the session until its
// timeout.
func Dial(ctx context.Context, config Config) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("zkdriver: connect: %w", err)
	}
	secure, err := config.TLS.load()
	if err != nil {
		return nil, err
	}
	c := &Conn{config: config, dialer: newDialer(config, secure), containers: semaphore.NewWeighted(maxContainers),
		hasSession: make(chan struct{}), finished: make(chan struct{})}
	c.dialer.onBegin, c.dialer.onResume, c.dialer.onFail, c.dialer.onEnd = c.begin, c.resume, c.failed, c.end
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

// begin starts the lease of a new session. The dialer calls begin and resume
// during the handshake, on a goroutine of go-zookeeper.

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
	// Never resume a session after its lease has ended, not even for Close,
	// which uses endInStore. go-zookeeper would set its watches again while
	// shutting down, which is a data race in go-zookeeper.
	if err := c.lease.Err(); err != nil {
		return err
	}
	c.keepalive.hostsAre(int(c.dialer.round.Load()))
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

// supervise sends heartbeats until the session ends. Then it shuts the Conn
// down, even if Close is never called.
func (c *Conn) supervise() {
	defer close(c.finished)
	c.keepalive.run(c.heartbeat, c.dialer.giveUp)
	c.config.Events.Ended()
	c.shutDown()
	c.workers.close()
}
