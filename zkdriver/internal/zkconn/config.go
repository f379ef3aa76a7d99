package zkconn

import (
	"context"
	"net"
	"time"
)

// Config says how Dial begins a session. LeaseMargin, Tick, TLS and Logins may
// be zero.
type Config struct {
	Hosts          []string      // "host:port"; an IPv6 address stands in brackets
	SessionTimeout time.Duration // the timeout that the client asks for
	ConnectTimeout time.Duration // how long Dial tries
	LeaseMargin    time.Duration // how much earlier the lease ends than the session in the store; 0: a quarter of the granted timeout
	Tick           time.Duration // the ensemble's tickTime; 0: not known

	TLS TLS

	// Logins returns the logins of the session for the digest scheme, each as
	// "user:password". It is a function so that printing a Config shows no
	// password.
	Logins func() [][]byte

	// Duty returns what the nodes of the session do at present. If it returns
	// Holding, the lease never counts from a later time than the sending time
	// of the latest answered write. Otherwise Syncs alone can renew the lease.
	// Duty is called often, from any goroutine. It must not block or call the
	// Conn.
	Duty func() Duty

	// LookAhead is called when Duty returns Unsure and the latest write is a
	// quarter of the session timeout old. It finds out which waiting nodes are
	// next in line. It may block, and is not called concurrently. After an error
	// it is called again a quarter of the session timeout later.
	LookAhead func() error

	Events Events

	lookUp func(ctx context.Context, name string) ([]string, error) // for tests; nil: the system's resolver
}

// resolve returns the addresses of a name. The addresses of an IP address are
// itself.
func (c Config) resolve(ctx context.Context, name string) ([]string, error) {
	if c.lookUp != nil {
		return c.lookUp(ctx, name)
	}
	return net.DefaultResolver.LookupHost(ctx, name)
}

// Events receives what a server reports. Dial may call all methods before it
// has returned. None of them may block.
type Events interface {
	// Changed reports that the watch of a path has fired. Changed and
	// Disconnected are called one at a time, in the order of the server's
	// reports.
	Changed(path string, change Change)

	// Disconnected reports that the connection broke. It is called before any
	// Changed of the next connection.
	Disconnected()

	// Ended reports that the session has ended and that no watch will fire any
	// more. It may be called several times.
	Ended()

	// Watching reports whether the server may have watches of the session. If
	// so, requests wait after a reconnect until the watches are set again.
	Watching() bool
}

// Change says what has happened to a watched node.
type Change int

const (
	Other   Change = iota // the node's children changed, or the node was created
	Written               // the node's data was written
	Deleted
)

// Duty says what the nodes of a session do, which decides what can renew its
// lease: see Config.Duty.
type Duty int

const (
	Idle    Duty = iota // the session has no node
	Waiting             // all its nodes wait for nodes ahead of them, and none is next in line
	Unsure              // like Waiting, but some nodes may be next in line: see Config.LookAhead
	Next                // all its nodes wait, and one is next in line: the node that it waits for is the first of its queue
	Holding             // one of its nodes may hold a lock
)

// onlyWaits reports whether the session has nodes and all of them wait.
func (d Duty) onlyWaits() bool { return d == Waiting || d == Unsure || d == Next }
