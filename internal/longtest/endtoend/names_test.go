package endtoend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver"
)

// The paths of locks must never change, because operators look for them with
// ZooKeeper's own tools.
func TestWhereTheNodesOfALockAre(t *testing.T) {
	for lock, path := range map[string]string{
		"orders/42":                "orders/42",
		"orders/order-1234567890":  "orders/order-1234567890~",
		"orders/order-1234567890~": "orders/order-1234567890~~",
		"job1732201234567/log":     "job1732201234567~/log",
		"0000000000":               "0000000000~",
	} {
		w := newFixture(t)
		c := w.client("web1")
		l := w.contend(c, lock, dlock.Exclusive).granted()
		require.Equal(t, []string{l.Node()}, w.nodes(path))
		w.unlock(l)
	}
}

func TestWalkShowsNamesAsTheyWereGiven(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	given := []string{"orders", "orders/0000000000", "orders/order-1234567890", "orders/order-1234567890/x~", "orders/order-1234567890~"}
	for _, name := range given {
		w.contend(c, name, dlock.Exclusive).granted()
	}
	connector, err := zkdriver.Driver{}.OpenConnector(w.dsn(w.server.Addr(), "session_timeout=10s"))
	require.NoError(t, err)
	s, err := connector.Connect(w.soon())
	require.NoError(t, err)
	defer s.Close()
	for _, prefix := range []string{"", "orders"} {
		found, err := driver.Inspect(s).Walk(w.soon(), prefix)
		require.NoError(t, err)
		require.Equal(t, given, found)
	}
}
