package dlock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

var (
	driversMu sync.RWMutex
	drivers   = make(map[string]driver.Driver)
)

// Register makes a driver available under the name that Open takes. It is meant for the init
// function of a driver's package and panics if the driver is nil or the name is taken, because
// nobody could handle the error.
func Register(name string, d driver.Driver) {
	driversMu.Lock()
	defer driversMu.Unlock()
	if d == nil {
		panic("dlock: Register of a nil driver for " + name)
	}
	if _, taken := drivers[name]; taken {
		panic("dlock: Register called twice for driver " + name)
	}
	drivers[name] = d
}

// Drivers returns the names of the registered drivers in lexical order.
func Drivers() []string {
	driversMu.RLock()
	defer driversMu.RUnlock()
	return slices.Sorted(maps.Keys(drivers))
}

// Client is the way to one store of locks. It holds one session with the store, which it begins
// on first use and again whenever one has ended. One client serves a whole program; it is safe
// for use by many goroutines.
//
// A client comes from [Open] or [NewClient]. The zero value and a nil *Client are as one that is
// closed: whatever needs the store returns an error that matches ErrClosed.
type Client struct {
	_      noCopy
	client *recipes.Client
}

// noCopy has go vet report copies of a Client.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// closed stands behind clients that were never opened.
var closed = sync.OnceValue(func() *recipes.Client {
	s := recipes.NewClient(nil)
	_ = s.Close() // of nothing
	return s
})

func (c *Client) store() *recipes.Client {
	if c == nil || c.client == nil {
		return closed()
	}
	return c.client
}

// Open returns a client of the store that the data source name describes, in the terms of the
// driver of that name. The options hold for all locks of the client. Open parses and does no
// I/O: use [Client.Ping] to see whether the store answers.
func Open(driverName, dsn string, opts ...Option) (*Client, error) {
	driversMu.RLock()
	d, ok := drivers[driverName]
	driversMu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("dlock: unknown driver%s (forgotten import?); registered: %s", named(driverName), registered())
	}
	connector, err := d.OpenConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("dlock: open %q: %w", driverName, err)
	}
	if connector == nil {
		return nil, fmt.Errorf("dlock: open %q: the driver has returned no connector", driverName)
	}
	return NewClient(connector, opts...), nil
}

// named repeats what can be a driver's name. What cannot may be a data source name in the wrong
// place, with a password.
func named(driverName string) string {
	if len(driverName) > 64 || strings.ContainsAny(driverName, "@:=?") {
		return ", whose name is not repeated as it looks like a data source name"
	}
	return fmt.Sprintf(" %q", driverName)
}

func registered() string {
	if names := Drivers(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}

// NewClient returns a client of the store that the connector leads to. It needs no registered
// driver and does no I/O.
func NewClient(c driver.Connector, opts ...Option) *Client {
	return &Client{client: recipes.NewClient(c, opts...)}
}

// RWMutex returns the read-write lock of that name; it does no I/O. A name is
// one or more segments of printable characters with slashes between them, such
// as "stock/42", at most 512 bytes in all. A segment is neither empty nor "."
// nor ".."; each other one will do, also "order-1234567890" or a UUID. Locks of
// different names never block each other, also if one name is the beginning of
// the other. With a bad name every use of the lock returns an error that
// matches ErrBadName. The options are added to those of the client.
func (c *Client) RWMutex(name string, opts ...Option) (m *RWMutex) {
	return c.store().RWMutex(name, opts...)
}

// String returns one line for people: the client's session, its server and its timeout,
// or why there is none. It may be called at any time and does no I/O.
func (c *Client) String() string { return c.store().String() }

// GoString returns String within "dlock.Client()".
func (c *Client) GoString() string { return c.store().GoString() }

// Ping makes sure that the client has a session and that the store answers.
func (c *Client) Ping(ctx context.Context) error { return c.store().Ping(ctx) }

// Close gives back everything that the client holds and waits for that, for 20 s
// at most. First calls in flight return ErrClosed and every lock's Lost
// closes; then the nodes go, also those of sessions that were lost before. An error
// that matches driver.ErrUnavailable says that the store could not be reached. The
// nodes then stay, and may block others, until the session times out in the store;
// the error says how long that takes. A second Close returns what the first one did.
func (c *Client) Close() error { return c.store().Close() }
