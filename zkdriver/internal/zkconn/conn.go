package zkconn

import (
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
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
	lease     *driver.Lease // like keepalive, set when the session has begun
	keepalive *keepalive
	workers   workers

	containers    *semaphore.Weighted // limits the concurrent calls of CreateContainer
	hasSession    chan struct{}       // closed when go-zookeeper has a session
	hasSessionOne sync.Once

	finished    chan struct{}      // closed when the Conn has shut down
	closes      singleflight.Group // concurrent calls of Close share one attempt
	endedThere  bool               // whether a server has confirmed the end of the session; used only within closes
	endAttempts int                // number of attempts to end the session in the store; used only within closes
}

// Lease returns the session's lease, whose error says why the session has
// ended. If a caller ends the lease, the Conn shuts down but leaves the session
// in the store.
func (c *Conn) Lease() *driver.Lease { return c.lease }

// Finished returns a channel that is closed when the session has ended and the
// Conn has released its resources, whether or not Close was called.
func (c *Conn) Finished() <-chan struct{} { return c.finished }

func (c *Conn) SessionID() int64 { return c.dialer.sessionID() }

// Connection returns the number of the current connection. It grows with each
// reconnect.
func (c *Conn) Connection() uint64 { return c.keepalive.connection() }

// Describe returns what is known of the session, except its password.
func (c *Conn) Describe() driver.SessionInfo { return c.dialer.describe() }

// Outage returns two durations, assuming that round trips take as long as they
// did lately: the least time for which a holder keeps its locks after it was
// cut off, and the longest outage that its locks always survive.
func (c *Conn) Outage() (kept, survived time.Duration) { return c.keepalive.outage() }

// failed records the error of an attempt to connect. If the lease runs out, its
// error will include that error.
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
