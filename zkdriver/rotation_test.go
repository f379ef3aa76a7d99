package zkdriver

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

type rotating struct {
	t             testing.TB
	ca, cert, key string
	good          *testenv.Certs
}

func newRotating(t testing.TB, certs *testenv.Certs) *rotating {
	dir := t.TempDir()
	r := &rotating{t: t, good: certs,
		ca: filepath.Join(dir, "ca.pem"), cert: filepath.Join(dir, "crt.pem"), key: filepath.Join(dir, "key.pem")}
	r.restore()
	return r
}

func (r *rotating) restore() {
	r.replace(r.ca, r.good.CA)
	r.replace(r.cert, r.good.Client.Cert)
	r.replace(r.key, r.good.Client.Key)
}

func (r *rotating) replace(file, by string) {
	r.t.Helper()
	text, err := os.ReadFile(by)
	require.NoError(r.t, err)
	require.NoError(r.t, os.WriteFile(file, text, 0o600))
}

func (r *rotating) params() string {
	return "?tls=true&tls_ca=" + url.PathEscape(r.ca) + "&tls_cert=" + url.PathEscape(r.cert) + "&tls_key=" + url.PathEscape(r.key)
}

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
	files := newRotating(t, certs)
	dsn := "zk://" + server.SecureAddr() + files.params()
	open := func() driver.Connector {
		c, err := Driver{}.OpenConnector(dsn)
		require.NoError(t, err)
		return c
	}
	known := open()
	require.NoError(t, connects(t, known))

	for _, k := range []struct {
		name  string
		spoil func()
	}{
		{"no CA file", func() { os.Remove(files.ca) }},
		{"an empty CA file", func() { require.NoError(t, os.Truncate(files.ca, 0)) }},
		{"no certificate", func() { os.Remove(files.cert) }},
		{"half a certificate", func() { require.NoError(t, os.Truncate(files.cert, 100)) }},
		{"no key", func() { os.Remove(files.key) }},
		{"the key of another certificate", func() { files.replace(files.key, certs.Server.Key) }},
		{"a CA that has not signed the server's certificate", func() { files.replace(files.ca, certs.OtherCA) }},
		{"a certificate that the server does not trust", func() {
			files.replace(files.cert, certs.Stranger.Cert)
			files.replace(files.key, certs.Stranger.Key)
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			k.spoil()
			require.ErrorIs(t, connects(t, known), driver.ErrUnavailable, "the files were right before, so they may be right again soon")
			err := connects(t, open())
			require.Error(t, err)
			require.NotErrorIs(t, err, driver.ErrUnavailable, "this connector has never read files that are right")
			files.restore()
			require.NoError(t, connects(t, known))
		})
	}
}
