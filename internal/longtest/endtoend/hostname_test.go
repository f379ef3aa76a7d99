package endtoend_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// nowhere is a host name that never resolves (RFC 6761).
const nowhere = "no-such-host.invalid"

func TestAServerIsReachedByItsNameAlthoughAnotherHostIsUnknown(t *testing.T) {
	w := newFixture(t)
	ip, port, err := net.SplitHostPort(w.server.Addr())
	require.NoError(t, err)
	found, err := net.LookupHost("localhost")
	require.NoError(t, err)
	require.Contains(t, found, ip)
	for range 5 { // each client tries the hosts in random order
		c := w.open(w.dsn(nowhere+",localhost:"+port, ""), "web1")
		lock := w.lock(c).granted()
		w.listed("q", lock.Node())
		w.unlock(lock)
		require.NoError(t, c.Close())
	}
}
