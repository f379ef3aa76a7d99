package zkdriver

import (
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
	const timeout, phases = 8 * time.Second, 8
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	files := newRotating(t, certs)
	for name, way := range map[string]struct{ addr, params string }{
		"plain": {server.Addr(), "?"},
		"TLS":   {server.SecureAddr(), files.params() + "&"},
	} {
		t.Run(name, func(t *testing.T) {
			var group sync.WaitGroup
			for phase := range phases {
				p := zktest.NewProxy(t, way.addr)
				s := mustConnect(t, "zk://"+p.Addr()+"/"+name+way.params+"session_timeout="+url.QueryEscape(timeout.String()))
				_, err := create(within(t), s, fmt.Sprint("q", phase), "h-W-", []byte("x"))
				require.NoError(t, err)
				group.Go(func() {
					time.Sleep(timeout + timeout*time.Duration(phase)/(2*phases))
					p.Cut()
					time.Sleep(timeout / 4)
					p.Heal()
					time.Sleep(timeout)
					if err := s.Err(); err != nil {
						t.Errorf("phase %d: %v", phase, err)
					}
				})
			}
			group.Wait()
		})
	}
}
