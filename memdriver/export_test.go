package memdriver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// ConnectorOf returns a connector for st, configured by a query such as
// "?session_timeout=5s".
func ConnectorOf(t *testing.T, st *Store, query string) driver.Connector {
	t.Helper()
	c, err := Driver{}.OpenConnector(query)
	require.NoError(t, err)
	return connector{store: st, timeout: c.(connector).timeout}
}
