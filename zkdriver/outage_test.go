package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// The tests of package zkconn compute in virtual time which outages a session
// survives. This one confirms the result with a real server over TLS.
func TestOutageOfAQuarterOfTheTimeoutLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several session timeouts")
	}
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	files := newRotating(t, certs)
	for name, way := range map[string]struct{ addr, params string }{
		"plain": {server.Addr(), "?"},
		"TLS":   {server.SecureAddr(), files.params() + "&"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lives(t, 8*time.Second, func(timeout time.Duration) error {
				return outages(t, way.addr, "/"+name+way.params, timeout)
			})
		})
	}
}

// outages interrupts the connections of eight sessions, each at a different
// time between two heartbeats.
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

func TestTheErrorOfALostSessionSaysWhy(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t)
	s := mustConnect(t, "zk://"+server.Addr()+"/?session_timeout=4s")
	server.Kill()
	<-s.Done()
	require.ErrorContains(t, s.Err(), "the last failure: ")
	require.ErrorContains(t, s.Err(), "connection refused")
}

func TestCallsThatGiveUpInAnOutageSendNothingLater(t *testing.T) {
	b := newFixture(t, "session_timeout=1m")
	p := b.mustCreate("q", "h-W-", "warm")
	b.proxy.Refuse()
	b.proxy.DropConnections()
	eventually(t, "the connection is broken", func() bool {
		b.watches.mu.Lock()
		defer b.watches.mu.Unlock()
		return b.watches.breaks > 0
	})
	before, _ := goroutinesOf()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var calls errgroup.Group
	giveUp := func(what string, call func() error) {
		calls.Go(func() error {
			if err := call(); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	for i := range 200 {
		giveUp("create", func() error { _, err := create(ctx, b, "q", "h-W-", fmt.Append(nil, i)); return err })
		giveUp("watch", func() error { _, err := watchPlace(ctx, b, fmt.Sprint("q", i), p); return err })
		giveUp("delete", func() error { return b.Delete(ctx, "q", p, driver.Released) })
	}
	require.NoError(t, calls.Wait())
	left, stacks := goroutinesOf()
	require.LessOrEqual(t, left, before+20, "goroutines are left:\n%s", stacks) // some requests and dials may still be in flight
	b.proxy.Heal()
	require.Equal(t, p.Seq+1, b.mustCreate("q", "h-W-", "next").Seq, "creates were sent after their callers had given up")
	require.Len(t, b.nodes("q"), 2)
}
