package zkconn

import (
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

// Conn is one session of ZooKeeper, on one zk.Conn. If the session or the
// zk.Conn ends, the other is ended, too. All methods may be called from several
// goroutines at a time.
//
// A Conn has these goroutines: a supervisor that sends heartbeats and finally
// shuts the Conn down, the workers, and the goroutines of go-zookeeper. The
// supervisor waits for all others.
type Conn struct {
	config    Config
	dialer    *dialer
	client    *zk.Conn
	events    <-chan zk.Event
	lease     *driver.Lease // set, like keepalive, when the session begins
	keepalive *keepalive
	workers   workers

	containers    *semaphore.Weighted // a container that is being made takes one of maxContainers units, see CreateContainer
	hasSession    chan struct{}       // closed when go-zookeeper has the session
	hasSessionOne sync.Once

	finished    chan struct{}      // closed when the Conn has shut down
	closes      singleflight.Group // concurrent calls of Close share one attempt
	endedThere  bool               // whether a server has confirmed the end of the session; only used within closes
	endAttempts int                // number of attempts to end the session in the store; only used within closes
}

// Lease returns the lease of the session. The lease ends at the latest when the
// session ends. The error of the lease says why. If a caller ends the lease,
// the Conn shuts down, and does not end the session in the store.
func (c *Conn) Lease() *driver.Lease { return c.lease }

// Finished returns a channel that is closed when the session has ended and the
// Conn has shut down here, with or without a call of Close.
func (c *Conn) Finished() <-chan struct{} { return c.finished }

// SessionID returns the id of the session.
func (c *Conn) SessionID() int64 { return c.dialer.sessionID() }

// Connection returns the number of the present connection. Each reconnect
// raises it.
func (c *Conn) Connection() uint64 { return c.keepalive.connection() }

// Describe returns what is known of the session. It does not show the session's
// password.
func (c *Conn) Describe() driver.SessionInfo { return c.dialer.describe() }

// failed is called when an attempt to connect has failed. If the session has begun, the
// error of its lease says so when the lease runs out.
func (c *Conn) failed(err error) {
	if c.lease != nil {
		c.lease.Failed(err)
	}
}

// end ends the lease, if there is one. The goroutine that sends heartbeats then
// shuts the Conn down.
func (c *Conn) end(cause error) {
	if c.lease != nil {
		c.lease.End(fmt.Errorf("zkdriver: %w: %w", driver.ErrSessionEnded, cause))
	}
}
