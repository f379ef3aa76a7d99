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

// Register makes a driver available to [Open] under the given name. The package
// of a driver calls Register in its init function. Register panics if the
// driver is nil or if the name is taken, because an init function cannot return
// an error.
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

// Open returns a client of the store that the data source name describes. The
// first argument names the driver that reads the data source name. The program
// has to import the package of this driver. The options hold for all locks of
// the client.
//
// Open does no I/O: call Ping of the client to see whether the store answers. Open
// returns an error if no driver of that name is registered, or if the driver does
// not accept the data source name. The error never repeats a password.
func Open(driverName, dsn string, opts ...Option) (*Client, error) {
	driversMu.RLock()
	d, ok := drivers[driverName]
	driversMu.RUnlock()
	if !ok {
		return nil, fmt.Errorf("dlock: unknown driver%s (forgotten import?); registered: %s", quotedName(driverName), registered())
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

// quotedName returns the name of an unknown driver for an error text. A name
// that looks like a data source name is left out, because the caller may have
// swapped the arguments and a data source name can hold a password.
func quotedName(driverName string) string {
	if len(driverName) > 64 || strings.ContainsAny(driverName, "@:=?") {
		return ", whose name is left out because it looks like a data source name"
	}
	return fmt.Sprintf(" %q", driverName)
}

func registered() string {
	if names := Drivers(); len(names) > 0 {
		return strings.Join(names, ", ")
	}
	return "none"
}

// NewClient returns a client of the store that the connector leads to, such as
// a store of package memdriver. It needs no registered driver and does no I/O.
// The options hold for all locks of the client.
func NewClient(c driver.Connector, opts ...Option) *Client {
	return recipes.NewClient(c, opts...)
}
