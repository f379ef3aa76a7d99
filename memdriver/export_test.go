package memdriver

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// ConnectorOf returns what OpenConnector makes of the parameters of a dsn, for a
// store without a name.
func ConnectorOf(t *testing.T, st *Store, query string) driver.Connector {
	t.Helper()
	c, err := Driver{}.OpenConnector(query)
	if err != nil {
		t.Fatal(err)
	}
	return connector{store: st, timeout: c.(connector).timeout}
}
