package zktest

import (
	"net"
	"testing"

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
