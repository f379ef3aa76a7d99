package redisdriver

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func lockedWith(t *testing.T, client redis.UniversalClient, o Options) (*dlock.Client, *dlock.Lock) {
	t.Helper()
	o.EmptyIsNew = true
	c, err := NewConnector(client, o)
	require.NoError(t, err)
	d := dlock.NewClient(c)
	t.Cleanup(func() { _ = d.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lock, err := d.RWMutex("stock/42").Lock(ctx)
	require.NoError(t, err)
	return d, lock
}

func TestAnExistingClientNeedsNoFreeConnection(t *testing.T) {
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: 3, PoolSize: 1, MaxActiveConns: 1, ReadTimeout: -1, WriteTimeout: -2})
	defer client.Close()
	taken := client.Conn()
	require.NoError(t, taken.Ping(t.Context()).Err())
	o := Options{Namespace: newNamespace(), SessionTimeout: time.Minute}
	first, held := lockedWith(t, client, o)
	next := make(chan *dlock.Lock, 1)
	go func() {
		_, lock := lockedWith(t, client, o)
		next <- lock
	}()
	require.Eventually(t, func() bool {
		return taken.ZCard(t.Context(), "{"+o.Namespace+"}:q:stock/42").Val() == 2
	}, 20*time.Second, time.Millisecond, "the waiter has joined, in the database of the client")
	require.NoError(t, held.Unlock())
	second := <-next
	require.Greater(t, second.Token(), held.Token())

	require.NoError(t, first.Close())
	require.NoError(t, taken.Ping(t.Context()).Err(), "Close leaves the client as it is")
	require.NoError(t, taken.Close())
	require.NoError(t, client.Close())
	require.NoError(t, second.Unlock(), "the sessions outlive the client")
}

func TestAnExistingClusterClientIsFollowedToItsMasters(t *testing.T) {
	t.Parallel()
	a, b := startCluster(t, "127.0.0.1")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1", a.Addr()}, RouteByLatency: true, ReadOnly: true})
	defer client.Close()
	servers := make(map[string]bool)
	for range 6 {
		c, err := NewConnector(client, Options{EmptyIsNew: true, Namespace: newNamespace()})
		require.NoError(t, err)
		session, err := c.Connect(t.Context())
		require.NoError(t, err)
		create(t, session, "stock/42")
		servers[driver.Inspect(session).Describe().Server] = true
		require.NoError(t, session.Close())
	}
	require.Equal(t, map[string]bool{a.Addr(): true, b.Addr(): true}, servers)
}

func TestAnExistingClientWithLoginAndTLS(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := redistest.Start(t, redistest.WithTLS(certs), redistest.With("requirepass hunter2"))
	for ca, want := range map[string]error{certs.CA: nil, certs.OtherCA: new(tls.CertificateVerificationError)} {
		config := certs.ClientConfig(t)
		config.RootCAs = testenv.Pool(t, ca)
		provider := func(context.Context) (user, password string, err error) { return "default", "hunter2", nil }
		for _, client := range []redis.UniversalClient{
			redis.NewClient(&redis.Options{Addr: server.SecureAddr(), TLSConfig: config, CredentialsProviderContext: provider}),
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.SecureAddr()}, TLSConfig: config, Password: "hunter2"}),
		} {
			c, err := NewConnector(client, Options{EmptyIsNew: true, Namespace: newNamespace()})
			require.NoError(t, err)
			session, err := c.Connect(t.Context())
			if want == nil {
				require.NoError(t, err)
				require.NoError(t, session.Close())
			} else {
				verification := new(tls.CertificateVerificationError)
				require.ErrorAs(t, err, &verification)
				require.NotErrorIs(t, err, driver.ErrUnavailable)
			}
			require.NoError(t, client.Close())
		}
	}
}

func TestUnusableClientsAndOptionsAreRefused(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	sentinels := &redis.FailoverOptions{MasterName: "locks", SentinelAddrs: []string{"127.0.0.1:1"}}
	cluster, ring := redis.NewFailoverClusterClient(sentinels), redis.NewRing(&redis.RingOptions{})
	defer client.Close()
	defer cluster.Close()
	defer ring.Close()
	for want, client := range map[string]redis.UniversalClient{
		"redisdriver: the client is nil":      nil,
		"is nil":                              (*redis.Client)(nil),
		"client is nil":                       (*redis.ClusterClient)(nil),
		"pass a client of one server":         ring,
		"redis.NewFailoverClient":             cluster,
		"the client is a redisdriver.wrapper": wrapper{client},
	} {
		c, err := NewConnector(client, Options{EmptyIsNew: true})
		assert.ErrorContains(t, err, want)
		assert.Nil(t, c)
	}
	for want, o := range map[string]Options{
		"redisdriver: Options.SessionTimeout: ": {SessionTimeout: time.Millisecond},
		"redisdriver: Options.Namespace: ":      {Namespace: "{a}"},
		"redisdriver: Options.PoolSize ":        {PoolSize: -1},
	} {
		_, err := NewConnector(client, o)
		assert.ErrorContains(t, err, want)
	}
}

type wrapper struct{ redis.UniversalClient }

// Even the dialer of go-redis may outlast its context if it does TLS.
func TestNothingWaitsForTheDialerOfAClient(t *testing.T) {
	server := redistest.Shared(t)
	let, dialing := make(chan struct{}), make(chan struct{}, 10)
	var hangs atomic.Bool
	var late atomic.Int64 // open connections that were dialed too late
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		if hangs.Load() {
			dialing <- struct{}{}
			<-let
			late.Add(1)
			conn = tellClose{conn, &late}
		}
		return conn, err
	}})
	defer client.Close()
	c, err := NewConnector(client, Options{EmptyIsNew: true, Namespace: newNamespace(), SessionTimeout: time.Hour})
	require.NoError(t, err)
	made, err := c.Connect(t.Context())
	require.NoError(t, err)
	hangs.Store(true)
	inside(made).link.drop()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := made.List(ctx, "stock/42")
		failed <- err
	}()
	<-dialing
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	hangs.Store(false)
	require.NoError(t, made.Close())
	close(let)
	require.Eventually(t, func() bool { return len(inside(made).link.dials) == 0 }, time.Minute, time.Millisecond)
	require.Zero(t, late.Load(), "connections left open")
}

type tellClose struct {
	net.Conn
	open *atomic.Int64
}

func (c tellClose) Close() error {
	c.open.Add(-1)
	return c.Conn.Close()
}
