package zktest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestSlowDiskSlowsWritesOnly(t *testing.T) {
	RequireSlowDisk(t)
	s := Start(t, WithSlowDisk())
	conn := s.Raw(t)
	const delay = time.Second
	_, err := conn.Create("/a", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	s.SetDiskDelay(delay)
	began := time.Now()
	_, err = conn.Set("/a", nil, -1)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), delay)

	s.SetDiskDelay(time.Hour) // the read below needs no sync to disk
	_, _, err = conn.Get("/a")
	require.NoError(t, err, "a read waits for no disk")

	s.SetDiskDelay(0)
	_, err = conn.Set("/a", nil, -1)
	require.NoError(t, err)
}
