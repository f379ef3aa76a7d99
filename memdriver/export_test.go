package memdriver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// ConnectorOf returns a connector of st with the parameters in query, the part
// of a data source name from the question mark on.
func ConnectorOf(t *testing.T, st *Store, query string) driver.Connector {
	t.Helper()
	c, err := Driver{}.OpenConnector(query)
	require.NoError(t, err)
	return connector{store: st, timeout: c.(connector).timeout}
}
