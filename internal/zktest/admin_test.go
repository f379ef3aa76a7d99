package zktest

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestAdminIsCalledAgainIfItsConnectionBreaks(t *testing.T) {
	calls := 0
	Shared(t).admin(t, func(*zk.Conn) error {
		if calls++; calls == 1 {
			return zk.ErrConnectionClosed
		}
		return nil
	})
	require.Equal(t, 2, calls)
}
