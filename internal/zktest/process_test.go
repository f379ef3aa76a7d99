package zktest

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// configured returns a server that has not been started.
func configured(t *testing.T, opts ...Option) *process {
	t.Helper()
	Require(t)
	p, err := newProcess(newSettings(opts))
	require.NoError(t, err)
	t.Cleanup(func() { p.keeper.close() })
	return p
}

func TestTakenPortIsNoticedAlsoIfAServerAnswersThere(t *testing.T) {
	for name, ready := range map[string]func(*process) bool{
		"a server of its own":     (*process).serving,
		"a server of an ensemble": (*process).listening,
	} {
		t.Run(name, func(t *testing.T) {
			p := configured(t)
			p.ready = ready
			other := Start(t)
			stranger := forwarderAt(t, p.port, other.Addr())
			require.ErrorIs(t, p.launch(), errPortTaken)
			stranger.Close()
			require.NoError(t, p.launch())
		})
	}
}

// forwarderAt answers on the port as the server at target does.
func forwarderAt(t *testing.T, port int, target string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", loopback(port))
	require.NoError(t, err)
	p, err := newProxy(target)
	require.NoError(t, err)
	p.listener.Close()
	p.listener = l
	p.serve()
	t.Cleanup(p.close)
	return l
}

func TestServerThatCannotStartSaysWhy(t *testing.T) {
	p := configured(t, WithConfig(map[string]string{"tickTime": "never"}))
	require.ErrorContains(t, p.launch(), "never")

	p = configured(t, WithJVM("-XX:NoSuchFlag"))
	require.ErrorContains(t, p.launch(), "NoSuchFlag")
}

func TestConfigAndJVMFlagsReachTheServer(t *testing.T) {
	s := Start(t, WithConfig(map[string]string{"tickTime": "700"}), WithJVM("-Dzookeeper.test.flag=here"))
	require.Contains(t, s.FourLetter("conf"), "tickTime=700")
	require.Contains(t, s.FourLetter("envi"), "java.")
	p := NewProxy(t, s.Addr())
	Dial(t, time.Second, p.Addr())
	require.Equal(t, time.Second, p.Sessions()[0].Timeout)
}

func TestPortsAreGivenOutOnce(t *testing.T) {
	seen := make(map[int]bool)
	for range 200 {
		port, err := freePort()
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
	}
}

// A server writes that it exits before it writes why, and the log may be read
// between the two lines.
func TestTakenPortIsNoticedWhereTheLogEndsBeforeTheReason(t *testing.T) {
	for name, lines := range map[string][2]string{
		"the server's error": {"Unexpected exception, exiting abnormally\n", "java.net.BindException: Address already in use"},
		"half a line":        {"Unexpected exception, exiting abnormally\njava.net.Bind", "Exception: Address already in use"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &process{dir: t.TempDir()}
			script := `printf '%s' "$1"; sleep 0.3; printf '%s\n' "$2"`
			var err error
			p.keeper, err = newKeeper(p.dir, []string{"/bin/sh", "-c", script, "server", lines[0], lines[1]})
			require.NoError(t, err)
			t.Cleanup(func() { p.keeper.close() })
			p.ready = func(p *process) bool { // returns once the log is there, as far as that line
				eventually(t, func() bool { return strings.HasPrefix(p.logFrom(0), lines[0]) })
				return false
			}
			require.ErrorIs(t, p.launch(), errPortTaken)
		})
	}
}

// A server that is about to serve may accept a connection and never answer on it.
func TestServerThatLeavesAWordUnansweredAtItsStartIsAskedAgain(t *testing.T) {
	t.Parallel()
	l, err := listenLoopback()
	require.NoError(t, err)
	defer l.Close()
	p := &process{dir: t.TempDir(), port: l.Addr().(*net.TCPAddr).Port, ready: func(*process) bool { return true }}
	p.keeper, err = newKeeper(p.dir, []string{"/bin/sh", "-c", "sleep 600"})
	require.NoError(t, err)
	t.Cleanup(func() { p.keeper.close() })
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			if n > 0 {
				io.ReadFull(conn, make([]byte, len("mntr")))
				io.WriteString(conn, packetsReceived+"\t7\n")
				conn.Close()
			}
		}
	}()
	require.NoError(t, p.launch())
	require.EqualValues(t, 7, p.ignored)
}
