package pgtest

import (
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A server refuses to start while a child process of the killed server is still
// running. launch must then fail instead of waiting.
func TestAServerThatDoesNotStartIsNotAwaited(t *testing.T) {
	s := Start(t)
	rest := children(s.proc.Pid())
	require.NotEmpty(t, rest)
	kill := func() {
		for _, child := range rest {
			_ = send(child, syscall.SIGKILL)
		}
	}
	t.Cleanup(kill)
	for _, child := range rest {
		require.NoError(t, send(child, sigStop))
	}
	require.NoError(t, s.proc.Process.Kill())
	require.ErrorContains(t, s.launch(), "the server did not start")
	kill()
	s.Restart()
}

// In a container, processes may have the parent 0, which is also the Pid of a
// server that is down. They must not be taken for its children.
func TestAServerThatDoesNotRunHasNoProcesses(t *testing.T) {
	require.Empty(t, children(0))
}

func TestPausedServerAnswersNothing(t *testing.T) {
	s := Start(t)
	s.Pause()
	conn, err := net.DialTimeout("tcp", s.Addr(), 10*time.Second)
	require.NoError(t, err, "the system accepts the connection")
	defer conn.Close()
	_, err = conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}) // asks for TLS
	require.NoError(t, err)
	answer := make([]byte, 1)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	_, err = conn.Read(answer)
	require.Error(t, err)

	s.Resume()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = conn.Read(answer)
	require.NoError(t, err)
	require.Equal(t, "N", string(answer), "the server has no TLS")
}

func TestTheClockOfAServerCanBeSet(t *testing.T) {
	RequireClock(t)
	s := Start(t, WithClock())
	for _, offset := range []time.Duration{0, 5 * time.Hour, -3 * time.Hour} {
		s.SetClock(offset)
		seconds, err := strconv.ParseFloat(s.SQL(t, "SELECT extract(epoch FROM clock_timestamp())"), 64)
		require.NoError(t, err)
		require.Equal(t, offset, time.Until(time.Unix(int64(seconds), 0)).Round(time.Hour))
	}
}
