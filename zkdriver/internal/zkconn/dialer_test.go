package zkconn

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestForeignSessionIsNeverAdopted(t *testing.T) {
	c := mustDial(t, testConfig(zktest.Shared(t).Addr()))
	require.Error(t, c.dialer.checkReply(connectReply{session: c.SessionID() + 1, timeout: c.dialer.timeout}))
	closed(t, "the session is over", c.Lease().Done())
	require.ErrorIs(t, c.Lease().Err(), driver.ErrSessionEnded)
}
