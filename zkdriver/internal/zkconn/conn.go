package zkconn

import (
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

// Conn is one ZooKeeper session on one zk.Conn. When either ends, so does the
// other. All methods are safe for concurrent use.
//
// A Conn has these goroutines: a supervisor, which sends heartbeats and finally
// shuts the Conn down, the workers, and the goroutines of go-zookeeper. The
// supervisor waits for all others.
type Conn struct {
	config    Config
	dialer    *dialer
	client    *zk.Conn
	events    <-chan zk.Event
	lease     *driver.Lease // like keepalive, set when the session begins
	keepalive *keepalive
	workers   workers

	containers    *semaphore.Weighted // bounds the containers being made: see CreateContainer
	hasSession    chan struct{}       // closed when go-zookeeper has the session
	hasSessionOne sync.Once

	finished    chan struct{}      // closed when the Conn has shut down
	closes      singleflight.Group // concurrent calls of Close share one attempt
	endedThere  bool               // whether a server has confirmed the end of the session; used only within closes
	endAttempts int                // number of attempts to end the session in the store; used only within closes
}

// Lease returns the lease of the session, which ends no later than the session.
// Its error says why. If a caller ends the lease, the Conn shuts down without
// ending the session in the store.
func (c *Conn) Lease() *driver.Lease { return c.lease }

// Finished returns a channel that is closed when the session has ended and the
// Conn has shut down here, whether or not Close was called.
func (c *Conn) Finished() <-chan struct{} { return c.finished }

func (c *Conn) SessionID() int64 { return c.dialer.sessionID() }

// Connection returns the number of the current connection, which grows with
// each reconnect.
func (c *Conn) Connection() uint64 { return c.keepalive.connection() }

// Describe returns what is known of the session, without its password.
func (c *Conn) Describe() driver.SessionInfo { return c.dialer.describe() }

// failed records a failed attempt to connect. Should the lease of the session
// run out, its error includes err.
func (c *Conn) failed(err error) {
	if c.lease != nil {
		c.lease.Failed(err)
	}
}

// end ends the lease, if there is one. The supervisor then shuts the Conn down.
func (c *Conn) end(cause error) {
	if c.lease != nil {
		c.lease.End(fmt.Errorf("zkdriver: %w: %w", driver.ErrSessionEnded, cause))
	}
}
