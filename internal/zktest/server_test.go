package zktest

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

func TestServerAnswersWhenStartReturns(t *testing.T) {
	s := Start(t)
	require.Equal(t, "imok", s.FourLetter("ruok"))
	require.Contains(t, s.FourLetter("srvr"), "Mode: standalone")
	require.DirExists(t, s.proc.Dir())
}

func TestServerGrantsShortSessions(t *testing.T) {
	p := NewProxy(t, Shared(t).Addr())
	Dial(t, time.Second, p.Addr())
	require.Equal(t, time.Second, p.Sessions()[0].Timeout)
}

func TestServerIsGoneWithItsTest(t *testing.T) {
	Require(t)
	var s *Server
	var pid int
	t.Run("test", func(t *testing.T) {
		s = Start(t)
		pid = s.proc.Pid()
	})
	require.NoDirExists(t, s.proc.Dir())
	require.False(t, alive(pid))
}

func TestKilledServerKeepsDataAndPort(t *testing.T) {
	for name, end := range map[string]func(*Server){"Kill": (*Server).Kill, "Stop": (*Server).Stop, "running": func(*Server) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			conn := s.Raw(t)
			_, err := conn.Create("/kept", []byte("data"), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			addr := s.Addr()

			end(s)
			if name != "running" {
				_, err = s.fourLetter("ruok")
				require.Error(t, err)
			}
			s.Restart()

			require.Equal(t, addr, s.Addr())
			data, _, err := s.Raw(t).Get("/kept")
			require.NoError(t, err)
			require.Equal(t, "data", string(data))
		})
	}
}

func TestPausedServerAnswersAgainAfterResume(t *testing.T) {
	s := Start(t)
	conn := s.Raw(t)
	s.Pause()
	answered := make(chan error, 1)
	go func() {
		_, _, err := conn.Children("/")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	s.Resume()
	require.NoError(t, <-answered)
}

func TestPausedServerCanBeStopped(t *testing.T) {
	s := Start(t)
	s.Pause()
	s.Stop()
	s.Restart()
	s.Pause()
}
