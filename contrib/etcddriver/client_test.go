package etcddriver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func newEtcdClient(t *testing.T, c clientv3.Config) *clientv3.Client {
	t.Helper()
	c.Logger = zap.NewNop()
	client, err := clientv3.New(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func lockedWith(t *testing.T, client *clientv3.Client, o Options) (*dlock.Client, *dlock.Lock) {
	t.Helper()
	c, err := NewConnector(client, o)
	require.NoError(t, err)
	d := dlock.NewClient(c)
	t.Cleanup(func() { _ = d.Close() })
	lock, err := d.RWMutex("q").Lock(within(t))
	require.NoError(t, err)
	return d, lock
}

func TestAnExistingClientAndItsSessionsOutliveEachOther(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	client := newEtcdClient(t, clientv3.Config{Endpoints: []string{server.URL()}, Username: "shop", Password: "geheim"})
	o := Options{SessionTimeout: time.Minute, Prefix: "locks"}
	first, held := lockedWith(t, client, o)
	require.Contains(t, server.Etcdctl("--user", "root:root", "get", "--prefix", "--keys-only", "locks/q//"), "locks/q//")
	require.NoError(t, held.Unlock())
	require.NoError(t, first.Close())
	_, err := client.Get(within(t), "locks/")
	require.NoError(t, err, "Close leaves the client as it is")

	_, held = lockedWith(t, client, o)
	require.NoError(t, client.Close())
	require.NoError(t, held.Unlock())
}

func TestTheEndpointsOfAnExistingClientAreFollowed(t *testing.T) {
	server := etcdtest.Shared(t)
	client := newEtcdClient(t, clientv3.Config{Endpoints: []string{"127.0.0.1:1", server.Addr()}})
	c, err := NewConnector(client, Options{Prefix: server.Prefix()})
	require.NoError(t, err)
	for _, want := range []string{"127.0.0.1:1," + server.Addr(), server.Addr()} {
		s, err := c.Connect(within(t))
		require.NoError(t, err)
		assert.Equal(t, want, driver.Inspect(s).Describe().Server)
		require.NoError(t, s.Close())
		client.SetEndpoints("http://" + server.Addr())
	}
}

func TestAnExistingClientWithTLS(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := etcdtest.Start(t, etcdtest.WithTLS(certs, certs.Server, true))
	config := certs.ClientConfig(t)
	client := newEtcdClient(t, clientv3.Config{Endpoints: []string{server.Addr()}, TLS: config})
	_, held := lockedWith(t, client, Options{TLS: config})
	require.NoError(t, held.Unlock())

	c, err := NewConnector(client, Options{})
	require.NoError(t, err)
	_, err = c.Connect(within(t))
	require.EqualError(t, err, "etcddriver: connect: the client uses TLS: set Options.TLS to its TLS configuration")
	client.SetEndpoints(server.URL())
	_, err = c.Connect(within(t))
	require.ErrorContains(t, err, `the client has the endpoint "https://`)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

func TestUnusableClientsAndOptionsAreRefused(t *testing.T) {
	for want, endpoint := range map[string]string{
		`the client has the endpoint "unix:///run/etcd", and only host:port`:        "unix:///run/etcd",
		`the client has the endpoint "https://etcd1:2379": set Options.TLS to`:      "https://etcd1:2379",
		`the client has the endpoint "etcd1", and only host:port, http://host:port`: "etcd1",
	} {
		c, err := NewConnector(newEtcdClient(t, clientv3.Config{Endpoints: []string{endpoint}}), Options{})
		assert.ErrorContains(t, err, "etcddriver: "+want)
		assert.Nil(t, c)
	}
	client := newEtcdClient(t, clientv3.Config{Endpoints: []string{"localhost:2379"}})
	for want, o := range map[string]Options{
		"Options.SessionTimeout: not a duration in whole seconds": {SessionTimeout: 1500 * time.Millisecond},
		"Options.Prefix: ": {Prefix: "a//b"},
	} {
		_, err := NewConnector(client, o)
		assert.ErrorContains(t, err, "etcddriver: "+want)
	}
	_, err := NewConnector(nil, Options{})
	assert.EqualError(t, err, "etcddriver: the client is nil")
}
