package zkdriver

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

func tlsParams(ca string, pair testenv.Pair) string {
	return "?tls=true&tls_ca=" + url.QueryEscape(ca) + "&tls_cert=" + url.QueryEscape(pair.Cert) + "&tls_key=" + url.QueryEscape(pair.Key)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	good := tlsParams(certs.CA, certs.Client)

	s := mustConnect(t, "zk://"+server.SecureAddr()+good+"&acl=creator")
	p, err := create(within(t), s, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	require.NoError(t, s.Delete(within(t), "q", p, driver.Changed))
	require.NoError(t, s.Close())

	for dsn, part := range map[string]string{
		"zk://" + server.SecureAddr() + tlsParams(certs.OtherCA, certs.Client):                      "certificate",
		"zk://" + server.SecureAddr() + good + "&tls_server_name=other.example":                     "other.example",
		"zk://" + server.SecureAddr() + tlsParams(certs.CA, certs.Stranger):                         "certificate",
		"zk://" + server.SecureAddr() + tlsParams(certs.CA+".missing", certs.Client):                "tls_ca",
		"zk://" + server.SecureAddr() + tlsParams(certs.CA, testenv.Pair{Cert: certs.CA, Key: "x"}): "tls_cert",
		"zk://" + server.SecureAddr() + tlsParams(certs.Client.Key, certs.Client):                   "no certificate",
		"zk://" + server.Addr() + good + "&connect_timeout=1s":                                      "the port may be a plain one",
		"zk://" + server.SecureAddr() + "?connect_timeout=1s":                                       "TLS",
	} {
		_, err := dsnConnect(t, dsn)
		require.ErrorContains(t, err, part, dsn)
		passing := part == "TLS" || part == "the port may be a plain one"
		require.Equal(t, passing, errors.Is(err, driver.ErrUnavailable), "%s: %v", dsn, err)
	}
}

func TestTLSConfigurationOfTheApplication(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	config := certs.ClientConfig(t)
	config.ServerName = "" // then the certificate must name the host
	c, err := Driver{TLS: config}.OpenConnector("zk://" + server.SecureAddr())
	require.NoError(t, err)
	s, err := c.Connect(context.Background())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Empty(t, config.ServerName)
	_, err = Driver{TLS: config}.OpenConnector("zk://h?tls=true&tls_ca=/x")
	require.ErrorContains(t, err, "tls_ca")
}

func TestDigestKeepsOthersOut(t *testing.T) {
	for _, mode := range []string{"creator", "digest"} {
		b := newFixture(t, "")
		addr := b.server.Addr() + b.chroot
		queue := "of/alice/q" + mode
		alice := mustConnect(t, "zk://alice:geheim@"+addr+"?acl="+mode)
		p, err := create(within(t), alice, queue, "h-W-", []byte("x"))
		require.NoError(t, err)

		for _, other := range []string{"zk://alice:falsch@" + addr, "zk://bob:geheim@" + addr, "zk://" + addr} {
			s := mustConnect(t, other)
			_, err := create(within(t), s, queue, "h-W-", []byte("y"))
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.ErrorContains(t, err, "password")
			require.NotContains(t, err.Error(), "falsch")
			_, err = s.List(within(t), queue)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.NotErrorIs(t, err, driver.ErrUnavailable)
			// Different users may have queues below the same ancestor.
			_, err = create(within(t), s, "of/alice/other"+mode, "h-W-", []byte("z"))
			require.NoError(t, err)
		}

		same := mustConnect(t, "zk://alice:geheim@"+addr+"?acl="+mode)
		c, err := watchName(within(t), same, queue, p.Name)
		require.NoError(t, err)
		require.NoError(t, alice.Delete(within(t), queue, p, driver.Changed))
		ended(t, c)
		require.NoError(t, alice.Close())
		require.NoError(t, same.Close())

		require.NoError(t, b.raw.AddAuth("digest", []byte("alice:geheim")))
		removeAll(t, b.raw, b.chroot+"/of")
	}
}

func TestLoginIsRepeatedOnEveryConnection(t *testing.T) {
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	p := zktest.NewProxy(t, server.Addr())
	s := mustConnect(t, "zk://alice:geheim@"+p.Addr()+chroot+"?acl=creator")
	for i := range 5 {
		place, err := create(within(t), s, "q", "h-W-", []byte{byte(i)})
		require.NoError(t, err)
		p.DropConnections()
		if _, err = s.List(within(t), "q"); err != nil {
			_, err = s.List(within(t), "q")
		}
		require.NoError(t, err)
		require.NoError(t, s.Delete(within(t), "q", place, driver.Changed))
	}
	raw := server.Raw(t)
	require.NoError(t, raw.AddAuth("digest", []byte("alice:geheim")))
	require.NoError(t, s.Close())
	removeAll(t, raw, chroot+"/q")
}
