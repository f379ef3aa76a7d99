package zkdriver

import (
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// The tests of package zkconn show in virtual time which outages a session
// survives. This test checks that against a server, with a margin for a busy
// machine, and over TLS as well.
func TestOutageOfAQuarterOfTheTimeoutLosesNothing(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	files := newRotating(t, certs)
	for name, way := range map[string]struct{ addr, params string }{
		"plain": {server.Addr(), "?"},
		"TLS":   {server.SecureAddr(), files.params() + "&"},
	} {
		t.Run(name, func(t *testing.T) {
			lives(t, 8*time.Second, func(timeout time.Duration) error {
				return outages(t, way.addr, "/"+name+way.params, timeout)
			})
		})
	}
}

// outages plays an outage for each of eight sessions, at another moment for each.
func outages(t *testing.T, addr, params string, timeout time.Duration) error {
	const phases = 8
	var group sync.WaitGroup
	errs := make([]error, phases)
	for phase := range phases {
		p := zktest.NewProxy(t, addr)
		s := mustConnect(t, "zk://"+p.Addr()+params+"session_timeout="+url.QueryEscape(timeout.String()))
		_, err := create(within(t), s, fmt.Sprint("q", phase), "h-W-", []byte("x"))
		require.NoError(t, err)
		group.Go(func() {
			time.Sleep(timeout + timeout*time.Duration(phase)/(2*phases))
			p.Cut()
			time.Sleep(timeout / 4)
			p.Heal()
			time.Sleep(timeout)
			if err := s.Err(); err != nil {
				errs[phase] = fmt.Errorf("phase %d: %w", phase, err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// The session ends because the server was killed, and its error names that reason.
func TestTheErrorOfALostSessionSaysWhy(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t)
	s := mustConnect(t, "zk://"+server.Addr()+"/?session_timeout=4s")
	server.Kill()
	<-s.Done()
	require.ErrorContains(t, s.Err(), "the last failure: ")
	require.ErrorContains(t, s.Err(), "connection refused")
}
