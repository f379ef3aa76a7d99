// Package doctortest helps to test the Diagnose method of a driver.
package doctortest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
)

// bound is the timeout of a diagnosis.
const bound = time.Minute

// Findings are the findings of one diagnosis, in the order in which they were
// reported.
type Findings []driver.Finding

// Run diagnoses the store of a connector and returns the findings. It fails the
// test if a finding contains [Password].
func Run(t testing.TB, c driver.Connector) (found Findings) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	require.NoError(t, driver.Diagnose(ctx, c, func(f driver.Finding) {
		assert.NotEmpty(t, f.Text)
		assert.Equal(t, f.Level == driver.OK, f.Advice == "", "%v", f)
		assert.NotContains(t, f.Text+f.Advice, Password)
		found = append(found, f)
	}))
	return found
}

// Password is the password to use in the data source names of tests. No finding
// may contain it.
const Password = "geheim"

// Healthy requires a finding for every check. All findings must be OK, except
// those of the checks in but.
func (f Findings) Healthy(t testing.TB, but ...driver.Check) {
	t.Helper()
	skip := make(map[driver.Check]bool)
	for _, check := range but {
		skip[check] = true
	}
	seen := make(map[driver.Check]bool)
	for _, found := range f {
		seen[found.Check] = true
		if !skip[found.Check] {
			assert.Equal(t, driver.OK, found.Level, "%v", found)
		}
	}
	for _, check := range driver.Checks() {
		assert.True(t, seen[check], "no finding for %s", check)
	}
}

// Has requires that f has a finding of this check and level that contains text
// and advice.
func (f Findings) Has(t testing.TB, check driver.Check, level driver.Level, text, advice string) {
	t.Helper()
	for _, found := range f {
		if found.Check == check && found.Level == level && strings.Contains(found.Text, text) && strings.Contains(found.Advice, advice) {
			return
		}
	}
	assert.Fail(t, "no such finding", "%s, %v, %q, %q\namong %v", check, level, text, advice, f)
}

// Ends requires that the last finding is a problem found by this check, and
// that it contains text and advice.
func (f Findings) Ends(t testing.TB, check driver.Check, text, advice string) {
	t.Helper()
	require.NotEmpty(t, f)
	f[len(f)-1:].Has(t, check, driver.Problem, text, advice)
}

// Network tests a driver's diagnosis of network problems, such as an unknown
// host or a closed port. connector returns a connector for a host:port that
// does not use TLS and whose session timeout is a second.
func Network(t *testing.T, connector func(t *testing.T, host string) driver.Connector) {
	t.Run("unknown host", func(t *testing.T) {
		Run(t, connector(t, "no-such-host.invalid:7")).Ends(t, driver.CheckResolve, "no-such-host.invalid", "correct the host")
	})
	t.Run("closed port", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		Run(t, connector(t, l.Addr().String())).Ends(t, driver.CheckConnect, l.Addr().String(), "start the server")
	})
	t.Run("silent port", func(t *testing.T) {
		Run(t, connector(t, Listen(t, silence))).Ends(t, driver.CheckLogin, "", "is the store")
	})
	t.Run("foreign port", func(t *testing.T) {
		found := Run(t, connector(t, Listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n") })))
		found.Ends(t, driver.CheckLogin, "", "")
	})
}

// TLS tests a driver's diagnosis of certificate problems. connector returns a
// connector for a host:port that uses TLS and trusts the authorities in the
// file ca. For a protocol that begins without TLS, start must answer the
// client's request to use TLS; otherwise it is nil.
func TLS(t *testing.T, connector func(t *testing.T, host, ca string) driver.Connector, start func(c net.Conn) error) {
	certs := testenv.NewCerts(t)
	for name, c := range map[string]struct {
		server       testenv.Pair
		ca           string
		text, advice string
	}{
		"unknown authority": {certs.Server, certs.OtherCA, "unknown authority", "tls_ca"},
		"another host":      {certs.OtherHost, certs.CA, "IP SANs", "tls_server_name"},
		"expired":           {certs.Expired, certs.CA, "expired", "renew the certificate"},
		"no such file":      {certs.Server, "/does/not/exist.pem", "/does/not/exist.pem", "correct the files"},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, connector(t, ServeTLS(t, c.server, start), c.ca)).Ends(t, driver.CheckTLS, c.text, c.advice)
		})
	}
	t.Run("silent", func(t *testing.T) {
		Run(t, connector(t, Listen(t, silence), certs.CA)).Ends(t, driver.CheckTLS, "no answer to the TLS handshake", "TLS")
	})
}

// ServeTLS starts a server that only does the TLS handshake, and returns its
// address. start is as for [TLS].
func ServeTLS(t testing.TB, pair testenv.Pair, start func(c net.Conn) error) string {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{pair.Load(t)}}
	return Listen(t, func(c net.Conn) {
		if start == nil || start(c) == nil {
			_ = tls.Server(c, config).Handshake()
		}
	})
}

func silence(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// Listen accepts connections and calls serve for each, until the test ends. It
// returns the address.
func Listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			go func() {
				defer stop()
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		cancel()
		<-ended
	})
	return l.Addr().String()
}
