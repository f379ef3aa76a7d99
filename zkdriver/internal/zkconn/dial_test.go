package zkconn

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// Operating systems resend a dropped packet only after 1 s, 3 s and 7 s.
func TestAHostThatDroppedRequestsIsReachedSoonAfterItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(3500 * time.Millisecond)
		var swallowed atomic.Int32
		conn, err := dialAgain(t.Context(), 250*time.Millisecond, func(ctx context.Context) (net.Conn, error) {
			if time.Now().Before(back) {
				swallowed.Add(1)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			here, there := net.Pipe()
			t.Cleanup(func() { there.Close() })
			return here, nil
		})
		require.NoError(t, err)
		conn.Close()
		require.LessOrEqual(t, time.Since(back), 250*time.Millisecond)
		require.EqualValues(t, 14, swallowed.Load())
	})
}

func TestEveryAddressOfANameIsDialled(t *testing.T) {
	_, port, err := net.SplitHostPort(zktest.Shared(t).Addr())
	require.NoError(t, err)
	var dropped atomic.Int32
	for _, address := range []string{"127.0.0.3", "127.0.0.4", "127.0.0.5"} {
		l, err := net.Listen("tcp", net.JoinHostPort(address, port))
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Skip("this system has one loopback address only")
		}
		require.NoError(t, err)
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				dropped.Add(1)
				conn.Close()
			}
		}()
	}
	config := testConfig("zoo:" + port)
	config.lookUp = func(_ context.Context, name string) ([]string, error) {
		if name != "zoo" {
			return nil, errors.New("another name")
		}
		return []string{"127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.1"}, nil
	}
	c := mustDial(t, config)
	require.LessOrEqual(t, dropped.Load(), int32(3), "an address was dialled twice before another one")
	require.Equal(t, 4, c.keepalive.schedule.addresses, "another address counts as another host")
}

func TestACertificateHasTheNameOfTheHost(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.OtherHost, zktest.NoClientCert))
	_, port, err := net.SplitHostPort(server.SecureAddr())
	require.NoError(t, err)
	config := testConfig("other.example:" + port)
	config.TLS = TLS{On: true, Files: dsn.TLS{CA: certs.CA}}
	config.lookUp = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	mustDial(t, config)
}

func TestAddressesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := testConfig("zoo:1")
		var found []string
		var fails error
		config.lookUp = func(ctx context.Context, _ string) ([]string, error) {
			if errors.Is(fails, context.DeadlineExceeded) { // the resolver is silent
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return append([]string(nil), found...), fails
		}
		d := newDialer(config)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		dialNext := func() string {
			addresses, err := d.lookUp(ctx, "zoo:1")
			require.NoError(t, err)
			require.NoError(t, ctx.Err())
			d.dialled("zoo:1", addresses[0])
			return addresses[0]
		}

		found = []string{"10.0.0.1", "10.0.0.2", "::1"}
		round := []string{dialNext(), dialNext(), dialNext()}
		require.ElementsMatch(t, []string{"10.0.0.1:1", "10.0.0.2:1", "[::1]:1"}, round)
		require.EqualValues(t, 3, d.round.Load())
		fails = errors.New("no such host")
		require.Equal(t, round[0], dialNext(), "without a resolver, the last known addresses count")
		fails = context.DeadlineExceeded
		require.Equal(t, round[1], dialNext())
		fails, found = nil, append(found, "10.0.0.4")
		require.Equal(t, "10.0.0.4:1", dialNext(), "a new address comes first")
		require.Equal(t, round[2], dialNext())
		found = []string{"10.0.0.5"}
		require.Equal(t, "10.0.0.5:1", dialNext())
		require.Equal(t, []string{"10.0.0.5:1"}, d.known["zoo:1"], "addresses that the name has no more are forgotten")
		require.EqualValues(t, 1, d.round.Load())
	})
}
