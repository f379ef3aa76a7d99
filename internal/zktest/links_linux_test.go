package zktest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

// requireLinksProxied requires that the servers are connected only through
// proxies. A test could not cut any other connection.
func requireLinksProxied(t *testing.T, e *Ensemble) {
	t.Helper()
	peerPorts := make(map[string]bool)
	e.eachProxy(func(p *testenv.Proxy) {
		_, port, _ := strings.Cut(p.Target(), ":")
		peerPorts[port] = true
	})
	require.Len(t, peerPorts, 2*len(e.Servers))

	ours, proxied := ownSockets(t), 0
	tables, err := filepath.Glob("/proc/net/tcp*")
	require.NoError(t, err)
	for _, table := range tables {
		for _, c := range established(t, table) {
			if !peerPorts[c.remotePort] {
				continue
			}
			require.True(t, ours[c.inode], "a server is connected to port %s directly", c.remotePort)
			proxied++
		}
	}
	require.GreaterOrEqual(t, proxied, 2*(len(e.Servers)-1), "each pair for elections, each follower with its leader")
}

type connection struct{ remotePort, inode string }

func established(t *testing.T, table string) (found []connection) {
	text, err := os.ReadFile(table)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[3] != "01" {
			continue
		}
		_, hex, _ := strings.Cut(fields[2], ":")
		var port int
		_, err := fmt.Sscanf(hex, "%X", &port)
		require.NoError(t, err)
		found = append(found, connection{fmt.Sprint(port), fields[9]})
	}
	return found
}

func ownSockets(t *testing.T) map[string]bool {
	inodes := make(map[string]bool)
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(t, err)
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, "socket:[") {
			inodes[strings.Trim(target, "socket:[]")] = true
		}
	}
	return inodes
}
