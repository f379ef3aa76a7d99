package zkdriver

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

func sessionReply(timeout time.Duration, id int64) []byte {
	b := binary.BigEndian.AppendUint32(nil, 4+4+8+4+16+1)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout/time.Millisecond))
	b = binary.BigEndian.AppendUint64(b, uint64(id))
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 16+1)...)
}

func refused(t *testing.T, dsn string) error {
	t.Helper()
	began := time.Now()
	s, err := dsnConnect(t, dsn)
	require.Nil(t, s)
	require.Error(t, err)
	require.Less(t, time.Since(began), bound/2)
	require.NotContains(t, err.Error(), "geheim")
	return err
}

func TestAServerWithABadCertificateReceivesNothingAndTheErrorSaysWhy(t *testing.T) {
	t.Parallel()
	good, other := newForger(t), newForger(t)
	past := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	future := func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }
	elsewhere := func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"other.example"} }
	nowhere := func(c *x509.Certificate) { c.IPAddresses = nil }
	client := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
	for name, c := range map[string]struct {
		cert tls.Certificate
		says string
	}{
		"of another CA":       {other.issue(nil), "certificate signed by unknown authority"},
		"expired":             {good.issue(past), "certificate has expired"},
		"not yet valid":       {good.issue(future), "not yet valid"},
		"of another host":     {good.issue(elsewhere), "cannot validate certificate for 127.0.0.1"},
		"of no host":          {good.issue(nowhere), "cannot validate certificate for 127.0.0.1"},
		"of a client":         {good.issue(client), "incompatible key usage"},
		"made by an attacker": {other.issue(func(c *x509.Certificate) { c.Subject.CommonName = "127.0.0.1" }), "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			server := record(t, &tls.Config{Certificates: []tls.Certificate{c.cert}}, sessionReply(time.Minute, 7))
			err := refused(t, "zk://alice:geheim@"+server.addr+good.trust()+"&acl=digest")
			assert.ErrorContains(t, err, server.addr)
			assert.ErrorContains(t, err, "TLS")
			assert.ErrorContains(t, err, c.says)
			assert.NotErrorIs(t, err, driver.ErrUnavailable, "a retry would not help")
			var verification *tls.CertificateVerificationError
			assert.ErrorAs(t, err, &verification)
			assert.Empty(t, server.heard())
		})
	}
	t.Run("and a good one is spoken to", func(t *testing.T) {
		server := record(t, &tls.Config{Certificates: []tls.Certificate{good.issue(nil)}}, sessionReply(time.Minute, 7))
		// The server never answers the login, so no session begins.
		refused(t, "zk://alice:geheim@"+server.addr+good.trust())
		assert.Contains(t, server.heard(), "geheim", "the login goes to a server that has proven who it is")
	})
}

func TestTLSBefore12IsRefused(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	for name, version := range map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11} {
		server := record(t, &tls.Config{Certificates: []tls.Certificate{f.issue(nil)}, MinVersion: version, MaxVersion: version}, sessionReply(time.Minute, 7))
		err := refused(t, "zk://alice:geheim@"+server.addr+f.trust())
		assert.ErrorContains(t, err, "protocol version", name)
		assert.Empty(t, server.heard(), name)
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		server := record(t, &tls.Config{Certificates: []tls.Certificate{f.issue(nil)}, MinVersion: version, MaxVersion: version}, sessionReply(time.Minute, 7))
		// This server does not answer logins. With handover=list, a session
		// needs none.
		s, err := dsnConnect(t, "zk://"+server.addr+f.trust()+"&handover=list")
		require.NoError(t, err, tls.VersionName(version))
		s.conn.Lease().End(errTestOver)
	}
}

// The error quotes the certificate before its signature is verified, so the
// quoted text may come from an attacker.
func TestTextOfACertificateIsMadePrintable(t *testing.T) {
	f := newForger(t)
	for _, name := range []string{"x\x1b]0;owned\x07.example", "x\r\nWARN all is well", "\x1b[2J", strings.Repeat("long.", 5000) + "example"} {
		cert := newForger(t).issue(func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{name} })
		server := record(t, &tls.Config{Certificates: []tls.Certificate{cert}}, nil)
		port := server.addr[strings.LastIndexByte(server.addr, ':'):]
		err := refused(t, "zk://alice:geheim@localhost"+port+f.trust())
		prints(t, err.Error())
		assert.Less(t, len(err.Error()), 10_000)
	}
	bad := "\x1b]0;owned\x07"
	server := record(t, &tls.Config{Certificates: []tls.Certificate{f.issue(nil)}}, nil)
	prints(t, refused(t, "zk://"+server.addr+f.trust()+"&tls_server_name="+url.PathEscape(bad)).Error())
	prints(t, refused(t, "zk://h?tls=true&tls_ca="+url.PathEscape("/"+bad)).Error())
	prints(t, refused(t, "zk://h?tls=true&tls_cert="+url.PathEscape("/"+bad)+"&tls_key=x").Error())
	empty := filepath.Join(t.TempDir(), bad)
	if err := os.WriteFile(empty, nil, 0o600); err == nil {
		prints(t, refused(t, "zk://h?tls=true&tls_ca="+url.PathEscape(empty)).Error())
	}
}

// prints requires that text is safe to show on a terminal: one line, without
// control characters or changes of the writing direction.
func prints(t testing.TB, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		assert.Failf(t, "bytes that are no text", "%q", text)
	}
	for i, r := range text {
		if !unicode.IsPrint(r) {
			assert.Failf(t, "a character that does not print", "%U at byte %d of %q", r, i, text)
			return
		}
	}
}

func TestAClientWithTLSSendsNoPlainText(t *testing.T) {
	t.Parallel()
	f := newForger(t)
	for name, answer := range map[string][]byte{
		"a server that grants a session in plain text": sessionReply(time.Minute, 7),
		"a server that says something else":            []byte("HTTP/1.1 200 OK\r\n\r\n"),
		"an alert that asks for an older version":      {0x15, 3, 1, 0, 2, 2, 70},
	} {
		t.Run(name, func(t *testing.T) {
			server := record(t, nil, answer)
			err := refused(t, "zk://alice:geheim@"+server.addr+f.trust())
			assert.ErrorContains(t, err, "TLS")
			heard := server.heard()
			assert.NotContains(t, heard, "alice")
			assert.NotContains(t, heard, "geheim")
			for heard != "" { // everything that the server heard must be TLS handshakes and alerts
				require.Contains(t, "\x16\x15", heard[:1])
				length := int(binary.BigEndian.Uint16([]byte(heard[3:])))
				heard = heard[5+length:]
			}
		})
	}
}

func TestWithoutTLSTheLoginCanBeReadOnTheWay(t *testing.T) {
	server := record(t, nil, sessionReply(time.Minute, 7))
	err := refused(t, "zk://alice:geheim@"+server.addr+"?connect_timeout=1s")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.Contains(t, server.heard(), "alice:geheim", "docs/use/guarantees.md says that the login can be read")
}

func TestACertificateIsTheNameOfAClient(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	dsn := "zk://" + server.SecureAddr()

	err := refused(t, dsn+"?connect_timeout=5s&tls=true&tls_ca="+url.PathEscape(certs.CA))
	assert.ErrorContains(t, err, "certificate", "the client has shown no certificate")
	err = refused(t, dsn+tlsParams(certs.CA, certs.Stranger)+"&connect_timeout=5s")
	assert.ErrorContains(t, err, "certificate", "the client has shown a certificate of another CA")

	alice := mustConnect(t, dsn+tlsParams(certs.CA, certs.Client)+"&acl=creator")
	p, err := create(within(t), alice, "of/q", "web1-W-", []byte("x"))
	require.NoError(t, err)
	acl, _, err := alice.conn.GetACL("/of/q")
	require.NoError(t, err)
	require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=testenv client"}}, acl)

	bob := mustConnect(t, dsn+tlsParams(certs.CA, certs.Server)+"&acl=creator") // another user's certificate, issued by the same CA
	for what, got := range refusedCalls(within(t), bob, "of/q", p) {
		assert.ErrorIs(t, got.err, zk.ErrNoAuth, what)
	}
	again, err := create(within(t), alice, "of/q", "web1-W-", []byte("y"))
	require.NoError(t, err)
	require.NoError(t, alice.Delete(within(t), "of/q", again, driver.Changed))
	require.NoError(t, alice.Delete(within(t), "of/q", p, driver.Changed))
}

func TestOneServerWithABadCertificateAmongGoodOnesIsPassedOver(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NoClientCert))
	forged := record(t, &tls.Config{Certificates: []tls.Certificate{newForger(t).issue(nil)}}, sessionReply(time.Minute, 7))
	params := "?tls=true&tls_ca=" + url.PathEscape(certs.CA) + "&session_timeout=4s"
	good := zktest.NewProxy(t, server.SecureAddr())
	for range 6 { // repeat, so that the forged server is sometimes dialed first
		s := mustConnect(t, "zk://alice:geheim@"+forged.addr+","+good.Addr()+params)
		require.Equal(t, good.Addr(), s.Describe().Server)
		p, err := create(within(t), s, "q", "web1-W-", []byte("x"))
		require.NoError(t, err)
		good.DropConnections() // makes the session dial again
		eventually(t, "another connection", func() bool { return s.conn.Connection() > 1 })
		require.NoError(t, s.Delete(within(t), "q", p, driver.Changed))
		require.NoError(t, s.Close())
	}
	require.Empty(t, forged.heard())

	err := refused(t, "zk://alice:geheim@"+forged.addr+","+forged.addr+params)
	require.NotErrorIs(t, err, driver.ErrUnavailable, "each address leads to the forged server")
	require.ErrorContains(t, err, "certificate")

	dead, errListen := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, errListen)
	require.NoError(t, dead.Close())
	err = refused(t, "zk://alice:geheim@"+forged.addr+","+dead.Addr().String()+params+"&connect_timeout=1s")
	require.ErrorIs(t, err, driver.ErrUnavailable, "the second address may have a server later")
}
