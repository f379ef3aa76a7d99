package zkdriver

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/url"
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
	certs := testenv.NewCerts(t)
	for name, c := range map[string]struct {
		certificate testenv.Pair
		says        string
	}{
		"of another CA":   {certs.Stranger, "certificate signed by unknown authority"},
		"expired":         {certs.Expired, "certificate has expired"},
		"of another host": {certs.OtherHost, "cannot validate certificate for 127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := recordTLS(t, c.certificate)
			err := refused(t, "zk://alice:geheim@"+server.addr+trusting(certs.CA)+"&acl=digest")
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
		server := recordTLS(t, certs.Server)
		// The server never answers the login, so no session begins.
		refused(t, "zk://alice:geheim@"+server.addr+trusting(certs.CA))
		assert.Contains(t, server.heard(), "geheim", "the login goes to a server that has proven who it is")
	})
}

// The error quotes the certificate before its signature is verified.
func TestTextOfACertificateIsMadePrintable(t *testing.T) {
	certs := testenv.NewCerts(t)
	port := func(r *recorder) string { return r.addr[strings.LastIndexByte(r.addr, ':'):] }
	err := refused(t, "zk://alice:geheim@localhost"+port(recordTLS(t, certs.Hostile))+trusting(certs.CA))
	prints(t, err.Error())
	assert.ErrorContains(t, err, "all is well")
	assert.Less(t, len(err.Error()), 10_000)
	bad := url.PathEscape("/\x1b]0;owned\x07")
	prints(t, refused(t, "zk://"+recordTLS(t, certs.Server).addr+trusting(certs.CA)+"&tls_server_name="+bad).Error())
	prints(t, refused(t, "zk://h?tls=true&tls_ca="+bad).Error())
	prints(t, refused(t, "zk://h?tls=true&tls_key=x&tls_cert="+bad).Error())
}

// prints requires printable text without changes of the writing direction.
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
	certs := testenv.NewCerts(t)
	for name, answer := range map[string][]byte{
		"a server that grants a session in plain text": sessionReply(time.Minute, 7),
		"a server that says something else":            []byte("HTTP/1.1 200 OK\r\n\r\n"),
		"an alert that asks for an older version":      {0x15, 3, 1, 0, 2, 2, 70},
	} {
		t.Run(name, func(t *testing.T) {
			server := record(t, nil, answer)
			err := refused(t, "zk://alice:geheim@"+server.addr+trusting(certs.CA))
			assert.ErrorContains(t, err, "TLS")
			heard := server.heard()
			assert.NotContains(t, heard, "alice")
			assert.NotContains(t, heard, "geheim")
			for heard != "" { // only TLS handshakes and alerts are allowed
				require.Contains(t, "\x16\x15", heard[:1])
				length := int(binary.BigEndian.Uint16([]byte(heard[3:])))
				heard = heard[5+length:]
			}
		})
	}
}

func TestACertificateIsTheNameOfAClient(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NeedsClientCert))
	dsn := "zk://" + server.SecureAddr()

	alice := mustConnect(t, dsn+tlsParams(certs.CA, certs.Client)+"&acl=creator")
	p, err := create(within(t), alice, "of/q", "web1-W-", []byte("x"))
	require.NoError(t, err)
	acl, _, err := alice.conn.GetACL("/of/q")
	require.NoError(t, err)
	require.Equal(t, []zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=testenv client"}}, acl)

	bob := mustConnect(t, dsn+tlsParams(certs.CA, certs.Server)+"&acl=creator") // another user's certificate, issued by the same CA
	for what, err := range refusedCalls(within(t), bob, "of/q", p) {
		assert.ErrorIs(t, err, zk.ErrNoAuth, what)
	}
	again, err := create(within(t), alice, "of/q", "web1-W-", []byte("y"))
	require.NoError(t, err)
	require.NoError(t, alice.Delete(within(t), "of/q", again, driver.Changed))
	require.NoError(t, alice.Delete(within(t), "of/q", p, driver.Changed))
}

func TestOneServerWithABadCertificateAmongGoodOnesIsPassedOver(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := zktest.Start(t, zktest.WithTLS(certs, certs.Server, zktest.NoClientCert))
	forged := recordTLS(t, certs.Stranger)
	params := "?tls=true&tls_ca=" + url.PathEscape(certs.CA) + "&session_timeout=4s"
	good := zktest.NewProxy(t, server.SecureAddr())
	for range 6 { // sometimes the forged server is dialed first
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
