package dlock

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/recipes"
)

var (
	driversMu sync.RWMutex
	drivers   = make(map[string]driver.Driver)
)

// Register makes a driver available to [Open] under the given name. Drivers
// call it in their init functions, so it panics instead of returning an error
// if the driver is nil or the name is taken.
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

// Open returns a client of the store described by a data source name. The
// program must import the package that registers driverName. The options apply
// to all locks of the client.
//
// Open does no I/O; use Ping to check that the store can be reached. Open
// returns an error if no driver of that name is registered, if the driver
// rejects the data source name, or if a part of the data source name has an
// unprintable character or a blank at either end. The error never repeats a
// password.
func Open(driverName, dataSource string, opts ...Option) (*Client, error) {
	driversMu.RLock()
	d, ok := drivers[driverName]
	driversMu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("dlock: unknown driver%s (forgotten import?); registered: %s", quotedName(driverName), cmp.Or(strings.Join(Drivers(), ", "), "none"))
	}
	if err := dsn.Check(dataSource); err != nil {
		return nil, fmt.Errorf("dlock: open %q: the data source name has %w", driverName, err)
	}
	connector, err := d.OpenConnector(dataSource)
	if err != nil {
		return nil, fmt.Errorf("dlock: open %q: %w", driverName, err)
	}
	if connector == nil {
		return nil, fmt.Errorf("dlock: open %q: the driver has returned no connector", driverName)
	}
	return NewClient(connector, opts...), nil
}

// quotedName omits a name that looks like a data source name, because that may
// contain a password. The caller has probably swapped the arguments.
func quotedName(driverName string) string {
	if len(driverName) > 64 || strings.ContainsAny(driverName, "@:=?") {
		return ", whose name is left out because it looks like a data source name"
	}
	return fmt.Sprintf(" %q", driverName)
}

// NewClient returns a client that uses the given connector, such as a store of
// package memdriver. It needs no registered driver and does no I/O. The options
// apply to all locks of the client.
func NewClient(c driver.Connector, opts ...Option) *Client {
	return recipes.NewClient(c, opts...)
}
