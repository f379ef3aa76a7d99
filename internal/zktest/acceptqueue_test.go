package zktest

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFullAcceptQueueLetsNoClientIn(t *testing.T) {
	s := Start(t, WithBacklog(4))
	raw := s.Raw(t)
	end := s.FillAcceptQueue()
	_, err := net.DialTimeout("tcp", s.Addr(), 300*time.Millisecond)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), err)

	end()
	end()
	_, _, err = raw.Children("/")
	require.NoError(t, err, "a connection from before FillAcceptQueue")
	_, _, err = s.Raw(t).Children("/")
	require.NoError(t, err, "a new connection")
}
