package dlock

import (
	"maps"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

var (
	driversMu sync.RWMutex
	drivers   = make(map[string]driver.Driver)
)

// Register makes a driver available under the name that Open takes. It is
// meant for the init function of a driver's package and panics if the driver is nil or the
// name is taken, because nobody could handle the error.
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
