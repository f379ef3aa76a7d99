package zkconn

import (
	"context"
	"net"
	"time"
)

// Config says how Dial begins a session. LeaseMargin, Tick, TLS and Logins may
// be zero.
type Config struct {
	Hosts          []string      // "host:port"; an IPv6 address in brackets
	SessionTimeout time.Duration // requested; the server may grant another one
	ConnectTimeout time.Duration // how long Dial tries
	LeaseMargin    time.Duration // how much earlier than the store's session the lease ends; 0: a quarter of the granted timeout
	Tick           time.Duration // the ensemble's tickTime; 0: unknown

	TLS TLS

	// Logins returns the session's logins for the digest scheme, each as
	// "user:password". It is a function so that printing a Config shows no
	// password.
	Logins func() [][]byte

	// Duty returns what the nodes of the session currently do. While it returns
	// Holding, the lease never counts from later than the sending time of the
	// latest answered write. Otherwise Syncs alone can renew the lease. Duty is
	// called often, from any goroutine. It must not block or call the Conn.
	Duty func() Duty

	// LookAhead finds out which waiting nodes are next in line. It is called
	// when Duty returns Unsure and the latest write is a quarter of the session
	// timeout old, and again a quarter of the session timeout after an error.
	// It may block, and is not called concurrently.
	LookAhead func() error

	Events Events

	lookUp func(ctx context.Context, name string) ([]string, error) // for tests; nil: the system's resolver
}

// resolve returns the addresses of a name. An IP address resolves to itself.
func (c Config) resolve(ctx context.Context, name string) ([]string, error) {
	if c.lookUp != nil {
		return c.lookUp(ctx, name)
	}
	return net.DefaultResolver.LookupHost(ctx, name)
}

// Events receives what a server reports. All methods may be called before Dial
// returns, and none of them may block.
type Events interface {
	// Changed reports that the watch of a path has fired. Calls of Changed and
	// Disconnected are serialized, in the order of the server's reports.
	Changed(path string, change Change)

	// Disconnected reports a broken connection, before any Changed of the next
	// one.
	Disconnected()

	// Ended reports that the session has ended and no watch will fire any more.
	// It may be called several times.
	Ended()

	// Watching reports whether the server may have watches of the session. If
	// so, requests wait after a reconnect until the watches are set again.
	Watching() bool
}

// Change says what has happened to a watched node.
type Change int

const (
	Other   Change = iota // the node was created or its children changed
	Written               // the node's data was written
	Deleted
)

// Duty says what the nodes of a session do, which decides what renews its
// lease: see Config.Duty.
type Duty int

const (
	Idle    Duty = iota // the session has no node
	Waiting             // all nodes wait for nodes ahead of them, and none is next in line
	Unsure              // like Waiting, but some node may be next in line: see Config.LookAhead
	Next                // all nodes wait, and one is next in line: the node that it waits for is the first of its queue
	Holding             // a node may hold a lock
)

// onlyWaits reports whether the session has nodes, all of which wait.
func (d Duty) onlyWaits() bool { return d == Waiting || d == Unsure || d == Next }
