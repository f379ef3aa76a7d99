package zkdriver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestASessionDescribesItself(t *testing.T) {
	server := zktest.Shared(t)
	for _, handover := range []string{"release", "list"} {
		dsn := "zk://" + server.Addr() + server.Chroot(t) + "?session_timeout=4s&lease_margin=1500ms&handover=" + handover
		c, err := Driver{}.OpenConnector(dsn)
		require.NoError(t, err)
		s, err := c.Connect(within(t))
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		p, err := create(within(t), s, "q", "a-W-", []byte("x"))
		require.NoError(t, err)
		info, err := driver.Inspect(s).Read(within(t), "q", p.Name)
		require.NoError(t, err)
		want := driver.SessionInfo{ID: info.Owner, Server: server.Addr(), Timeout: 4 * time.Second, Margin: 1500 * time.Millisecond}
		assert.Equal(t, want, driver.Inspect(s).Describe(), "handover=%s", handover)
		require.NoError(t, s.Close())
		assert.Equal(t, want, driver.Inspect(s).Describe(), "after Close")
	}
}
