package zkconn

import (
	"context"
	"net"
	"time"
)

// Config configures a session for Dial. LeaseMargin, Tick, TLS and Logins are
// optional.
type Config struct {
	Hosts          []string      // "host:port"; an IPv6 address in brackets
	SessionTimeout time.Duration // requested; the server may grant another one
	ConnectTimeout time.Duration // how long Dial tries
	LeaseMargin    time.Duration // how much earlier than the store's session the lease ends; 0: a quarter of the granted timeout
	Tick           time.Duration // the ensemble's tickTime; 0: unknown

	TLS TLS

	// Logins returns the session's digest logins, each as "user:password".
	// It is a function so that printing a Config reveals no password.
	Logins func() [][]byte

	// Duty returns what the session's nodes currently require of its
	// heartbeats. While it returns Holding, only answered writes renew the
	// lease; otherwise Syncs are enough. It is called often, from any
	// goroutine, and must not block or call the Conn.
	Duty func() Duty

	// LookAhead finds out which waiting nodes are next in line, and updates
	// what Duty returns. It is called while Duty returns Unsure, once the
	// latest write is a quarter of the session timeout old, and again after
	// an error, a quarter of the timeout later. It may block. Calls do not
	// overlap.
	LookAhead func() error

	Events Events

	// Dial makes the connections, without TLS. Nil means the usual way.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	lookUp func(ctx context.Context, name string) ([]string, error) // for tests; nil: the system's resolver
}

// resolve returns the addresses of a host name. An IP address resolves to
// itself.
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

	// Disconnected reports a broken connection. It is called before any
	// Changed of the next connection.
	Disconnected()

	// Ended reports that the session has ended and that no watch will fire
	// any more. It may be called several times.
	Ended()

	// Watching reports whether the server may hold watches of the session.
	// If so, requests are delayed after a reconnect until the watches are
	// set again.
	Watching() bool
}

// Change says what has happened to a watched node.
type Change int

const (
	Other   Change = iota // the node was created or its children changed
	Written               // the node's data was written
	Deleted
)

// Duty says what a session's nodes do, which determines the requests that renew
// its lease: see Config.Duty.
type Duty int

const (
	Idle    Duty = iota // the session has no node
	Waiting             // all nodes wait for nodes ahead of them, and none is next in line
	Unsure              // like Waiting, but some node may be next in line: see Config.LookAhead
	Next                // all nodes wait, and one is next in line: the node that it waits for is the first of its queue
	Holding             // a node may hold a lock
)

// onlyWaits reports whether the session has nodes and all of them are waiters'.
func (d Duty) onlyWaits() bool { return d == Waiting || d == Unsure || d == Next }
