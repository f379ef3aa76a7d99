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

	// HasNodes reports whether the session has nodes. While it has, only an
	// answered write renews the lease; otherwise an answered Sync is enough.
	// HasNodes is called often and from any goroutine. It must not block or
	// call the Conn.
	HasNodes func() bool

	Events Events

	// Dial makes the connections, without TLS. If nil, a net.Dialer dials.
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

	// Disconnected reports that the connection has broken. It is called before
	// any call of Changed for events of the next connection.
	Disconnected()

	// Ended reports that the session has ended and that no watch will fire
	// any more. It may be called several times.
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
