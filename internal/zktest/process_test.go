package zktest

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

func configured(t *testing.T, opts ...Option) *process {
	t.Helper()
	Require(t)
	p, err := newProcess(newSettings(opts))
	require.NoError(t, err)
	t.Cleanup(func() { p.proc.Close() })
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
			require.ErrorIs(t, p.launch(), testenv.ErrPortTaken)
			stranger.Close()
			require.NoError(t, p.launch())
		})
	}
}

func forwarderAt(t *testing.T, port int, target string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", testenv.Loopback(port))
	require.NoError(t, err)
	p := testenv.ProxyOn(l, target)
	p.Serve(nil)
	t.Cleanup(p.Close)
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

// A server that cannot bind its port first logs that it exits, and then why. If
// launch reads the log in between, it must still report that the port is taken.
func TestTakenPortIsNoticedWhereTheLogEndsBeforeTheReason(t *testing.T) {
	for name, lines := range map[string][2]string{
		"the server's error": {"Unexpected exception, exiting abnormally\n", "java.net.BindException: Address already in use"},
		"half a line":        {"Unexpected exception, exiting abnormally\njava.net.Bind", "Exception: Address already in use"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &process{}
			script := `printf '%s' "$1"; sleep 0.3; printf '%s\n' "$2"`
			var err error
			p.proc, err = testenv.NewProcess(t.TempDir(), []string{"/bin/sh", "-c", script, "server", lines[0], lines[1]})
			require.NoError(t, err)
			t.Cleanup(func() { p.proc.Close() })
			p.ready = func(p *process) bool { // returns once the first of the two lines is in the log
				eventually(t, func() bool { return strings.HasPrefix(p.proc.Log(0), lines[0]) })
				return false
			}
			require.ErrorIs(t, p.launch(), testenv.ErrPortTaken)
		})
	}
}

func TestStartingServerThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	t.Parallel()
	l, err := testenv.Listen()
	require.NoError(t, err)
	defer l.Close()
	p := &process{port: l.Addr().(*net.TCPAddr).Port, ready: func(*process) bool { return true }}
	p.proc, err = testenv.NewProcess(t.TempDir(), []string{"/bin/sh", "-c", "exec sleep 600"})
	require.NoError(t, err)
	t.Cleanup(func() { p.proc.Close() })
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
