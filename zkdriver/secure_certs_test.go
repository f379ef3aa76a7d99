package zkdriver

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/doctortest"
)

// forger issues certificates, valid and invalid ones.
type forger struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM file with the certificate of this certificate authority
}

func newForger(t testing.TB) *forger {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	f := &forger{t: t, key: key, file: filepath.Join(t.TempDir(), "ca.pem")}
	template := certificate()
	template.Subject.CommonName = "forger"
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	f.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return f
}

func certificate() *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "forged"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

func (f *forger) issue(change func(*x509.Certificate)) tls.Certificate {
	f.t.Helper()
	template := certificate()
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, f.cert, &f.key.PublicKey, f.key)
	require.NoError(f.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: f.key}
}

func (f *forger) trust() string {
	return "?tls=true&tls_ca=" + url.PathEscape(f.file) + "&connect_timeout=2s"
}

// recorder records the bytes that clients send to a server, decrypted if they
// use TLS.
type recorder struct {
	addr string
	mu   sync.Mutex
	said bytes.Buffer
}

// record starts a server that answers each new connection with the given bytes
// and then says nothing.
func record(t testing.TB, config *tls.Config, answer []byte) *recorder {
	t.Helper()
	r := &recorder{}
	r.addr = doctortest.Listen(t, func(conn net.Conn) {
		if config != nil {
			conn = tls.Server(conn, config)
		}
		conn.Write(answer)
		io.Copy(r, conn)
	})
	return r
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.Write(b)
}

func (r *recorder) heard() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.String()
}
