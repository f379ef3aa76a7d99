package zkdriver

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

func connects(t testing.TB, c driver.Connector) error {
	t.Helper()
	s, err := c.Connect(within(t))
	if err == nil {
		require.NoError(t, s.Close())
	}
	return err
}

func TestBadTLSFilesArePassingErrorsAfterTheFirstSession(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	dir := t.TempDir()
	ca, client := filepath.Join(dir, "ca.pem"), testenv.Pair{Cert: filepath.Join(dir, "crt.pem"), Key: filepath.Join(dir, "key.pem")}
	replace := func(file, by string) {
		text, err := os.ReadFile(by)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	restore := func() {
		replace(ca, certs.CA)
		replace(client.Cert, certs.Client.Cert)
		replace(client.Key, certs.Client.Key)
	}
	restore()
	c, err := Driver{}.OpenConnector("zk://" + server.SecureAddr() + tlsParams(ca, client))
	require.NoError(t, err)
	require.NoError(t, connects(t, c))

	for name, spoil := range map[string]func(){
		"no CA file":                     func() { os.Remove(ca) },
		"an empty CA file":               func() { require.NoError(t, os.Truncate(ca, 0)) },
		"no certificate":                 func() { os.Remove(client.Cert) },
		"half a certificate":             func() { require.NoError(t, os.Truncate(client.Cert, 100)) },
		"no key":                         func() { os.Remove(client.Key) },
		"the key of another certificate": func() { replace(client.Key, certs.Server.Key) },
		"a CA that has not signed the server's certificate": func() { replace(ca, certs.OtherCA) },
		"a certificate that the server does not trust": func() {
			replace(client.Cert, certs.Stranger.Cert)
			replace(client.Key, certs.Stranger.Key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			spoil()
			require.ErrorIs(t, connects(t, c), driver.ErrUnavailable, "the files were right before, so they may be right again soon")
			restore()
			require.NoError(t, connects(t, c))
		})
	}
}

func TestASessionSurvivesNewCertificates(t *testing.T) {
	t.Parallel()
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	testenv.Rotation{
		Driver: func(func(context.Context) (string, error)) driver.Driver { return Driver{} },
		DSN: func(_ string, c *testenv.Certs) string {
			return "zk://" + server.SecureAddr() + tlsParams(c.CA, c.Client) + "&session_timeout=5m"
		},
		Certs:        certs,
		Certificates: server.Restart,
	}.Run(t)
}
