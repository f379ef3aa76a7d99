// Package connecthook lets the program dlock open the connector of a registered
// driver, for which applications have no use.
package connecthook

import "github.com/dlock-go/dlock/driver"

// Open returns the connector of a store. It is set by package dlock.
var Open func(driverName, dsn string) (driver.Connector, error)
