package zkdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

func tlsParams(ca string, pair testenv.Pair) string {
	return "?tls=true&tls_ca=" + url.QueryEscape(ca) + "&tls_cert=" + url.QueryEscape(pair.Cert) + "&tls_key=" + url.QueryEscape(pair.Key)
}

func TestATLSErrorSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	good := tlsParams(certs.CA, certs.Client)

	for dsn, part := range map[string]string{
		"zk://" + server.SecureAddr() + tlsParams(certs.OtherCA, certs.Client):                      "certificate",
		"zk://" + server.SecureAddr() + good + "&tls_server_name=other.example":                     "other.example",
		"zk://" + server.SecureAddr() + tlsParams(certs.CA, certs.Stranger):                         "certificate",
		"zk://" + server.SecureAddr() + trusting(certs.CA):                                          "certificate",
		"zk://" + server.SecureAddr() + tlsParams(certs.CA+".missing", certs.Client):                "tls_ca",
		"zk://" + server.SecureAddr() + tlsParams(certs.CA, testenv.Pair{Cert: certs.CA, Key: "x"}): "tls_cert",
		"zk://" + server.SecureAddr() + tlsParams(certs.Client.Key, certs.Client):                   "no certificate",
		"zk://alice:geheim@" + server.Addr() + good + "&connect_timeout=3s":                         "the port may be a plain one",
		"zk://alice:geheim@" + server.SecureAddr() + "?connect_timeout=3s":                          "may speak TLS",
	} {
		_, err := dsnConnect(t, dsn)
		require.ErrorContains(t, err, part, dsn)
		passing := part == "may speak TLS" || part == "the port may be a plain one"
		require.Equal(t, passing, errors.Is(err, driver.ErrUnavailable), "%s: %v", dsn, err)
	}
}

func TestTLSConfigurationOfTheApplication(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	config := certs.ClientConfig(t)
	config.ServerName = "" // so that the certificate must name the host
	c, err := Driver{TLS: config}.OpenConnector("zk://" + server.SecureAddr())
	require.NoError(t, err)
	s, err := c.Connect(context.Background())
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Empty(t, config.ServerName)
	_, err = Driver{TLS: config}.OpenConnector("zk://h?tls=true&tls_ca=/x")
	require.ErrorContains(t, err, "tls_ca")

	forged := recordTLS(t, certs.Stranger)
	c, err = Driver{TLS: config}.OpenConnector("zk://alice:geheim@" + forged.addr + "?connect_timeout=2s")
	require.NoError(t, err)
	_, err = c.Connect(context.Background())
	var verification *tls.CertificateVerificationError
	require.ErrorAs(t, err, &verification)
	require.Empty(t, forged.heard())
}

func TestLoginIsRepeatedOnEveryConnection(t *testing.T) {
	b := newFixture(t, "")
	s := mustConnect(t, "zk://alice:geheim@"+b.proxy.Addr()+b.chroot+"?acl=creator")
	for i := range 5 {
		place, err := create(within(t), s, "q", "h-W-", []byte{byte(i)})
		require.NoError(t, err)
		b.proxy.DropConnections()
		if _, err = s.List(within(t), "q"); err != nil {
			_, err = s.List(within(t), "q")
		}
		require.NoError(t, err)
		require.NoError(t, s.Delete(within(t), "q", place, driver.Changed))
	}
}
