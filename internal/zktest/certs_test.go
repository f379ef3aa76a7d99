package zktest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestClientWithCertificateGetsSession(t *testing.T) {
	certs := testenv.NewCerts(t)
	s := Start(t, WithTLS(certs, certs.Server, NeedsClientCert))
	config := certs.ClientConfig(t)
	conn, end, err := connect(10*time.Second, func(network, addr string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, addr, config)
	}, s.SecureAddr())
	require.NoError(t, err)
	_, _, err = conn.Children("/")
	require.NoError(t, err)
	end()

	// The port without TLS still works.
	_, _, err = s.Raw(t).Children("/")
	require.NoError(t, err)
	require.Positive(t, s.Requests(t))
}

func TestServerRefusesClientItDoesNotTrust(t *testing.T) {
	certs := testenv.NewCerts(t)
	s := Start(t, WithTLS(certs, certs.Server, NeedsClientCert))

	config := certs.ClientConfig(t)
	require.NoError(t, handshake(s.SecureAddr(), config))
	config.Certificates = nil
	require.Error(t, handshake(s.SecureAddr(), config), "no certificate")
	config.Certificates = []tls.Certificate{certs.Stranger.Load(t)}
	require.Error(t, handshake(s.SecureAddr(), config), "another CA's certificate")
}

func TestClientRefusesServerItDoesNotTrust(t *testing.T) {
	certs := testenv.NewCerts(t)
	s := Start(t, WithTLS(certs, certs.Server, NoClientCert))

	config := &tls.Config{RootCAs: testenv.Pool(t, certs.CA), ServerName: "127.0.0.1"}
	require.NoError(t, handshake(s.SecureAddr(), config))
	config.RootCAs = testenv.Pool(t, certs.OtherCA)
	var unknown x509.UnknownAuthorityError
	require.ErrorAs(t, handshake(s.SecureAddr(), config), &unknown)
}

func TestCertificateOfAnotherHostIsRefused(t *testing.T) {
	certs := testenv.NewCerts(t)
	s := Start(t, WithTLS(certs, certs.OtherHost, NoClientCert))

	config := &tls.Config{RootCAs: testenv.Pool(t, certs.CA), ServerName: "localhost"}
	var hostname x509.HostnameError
	require.ErrorAs(t, handshake(s.SecureAddr(), config), &hostname)
	config.ServerName = "other.example"
	require.NoError(t, handshake(s.SecureAddr(), config))
}

// handshake begins a session over TLS. It waits for the first reply, because in
// TLS 1.3 the client's handshake may succeed before the server has rejected the
// client's certificate.
func handshake(addr string, config *tls.Config) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if err := writeFrame(conn, int32(0), int64(0), int32(5000), int64(0), make([]byte, 16)); err != nil {
		return err
	}
	if _, err := readFrame(conn); err != nil {
		return err
	}
	return closeSession(conn)
}
