package dlock

import (
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

// NewClient returns a client of the store that the connector leads to. It needs
// no registered driver and does no I/O.
func NewClient(c driver.Connector, opts ...Option) *Client {
	return recipes.NewClient(c, opts...)
}
