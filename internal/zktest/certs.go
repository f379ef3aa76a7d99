package zktest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs are certificates for tests, as PEM files.
type Certs struct {
	// CA signs all the certificates below; OtherCA signs none.
	CA, OtherCA string
	// Server is for localhost, 127.0.0.1 and ::1, OtherHost for other.example only.
	Server, OtherHost Pair
	// Client is a client's certificate, Stranger one that OtherCA has signed.
	Client, Stranger Pair
}

// Pair names the files of a certificate and its key. Both holds the two in one file, as ZooKeeper
// wants them.
type Pair struct{ Cert, Key, Both string }

// NewCerts makes certificates in a directory that is removed when the test ends.
func NewCerts(t testing.TB) *Certs {
	t.Helper()
	m := &mint{t: t, dir: t.TempDir()}
	ca, other := m.authority("ca"), m.authority("other-ca")
	here := []string{"localhost", "127.0.0.1", "::1"}
	return &Certs{
		CA:        ca.pair.Cert,
		OtherCA:   other.pair.Cert,
		Server:    m.issue("server", ca, here),
		OtherHost: m.issue("other-host", ca, []string{"other.example"}),
		Client:    m.issue("client", ca, here),
		Stranger:  m.issue("stranger", other, here),
	}
}

// ClientConfig is what a client of a server [WithTLS] needs: it trusts the CA, shows
// the client's certificate and expects the name localhost.
func (c *Certs) ClientConfig(t testing.TB) *tls.Config {
	t.Helper()
	return &tls.Config{
		RootCAs:      Pool(t, c.CA),
		Certificates: []tls.Certificate{c.Client.Load(t)},
		ServerName:   "localhost",
	}
}

// Pool reads the certificates of a PEM file.
func Pool(t testing.TB, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("zktest: no certificate in %s", file)
	}
	return pool
}

// Load reads the pair.
func (p Pair) Load(t testing.TB) tls.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// ClientAuth says whether a server asks clients for their certificate.
type ClientAuth string

const (
	NoClientCert    ClientAuth = "none"
	NeedsClientCert ClientAuth = "need"
)

// WithTLS gives the server a TLS port too, see [Server.SecureAddr], where it shows the certificate and
// trusts clients of certs.CA.
func WithTLS(certs *Certs, server Pair, auth ClientAuth) Option {
	return func(s *settings) {
		s.tls = true
		s.config["secureClientPortAddress"] = "127.0.0.1"
		s.config["serverCnxnFactory"] = "org.apache.zookeeper.server.NettyServerCnxnFactory"
		s.config["ssl.keyStore.location"] = server.Both
		s.config["ssl.trustStore.location"] = certs.CA
		s.config["ssl.clientAuth"] = string(auth)
		s.config["ssl.hostnameVerification"] = "false" // of clients: theirs is by address, and a test's comes from anywhere
	}
}

// mint makes certificates.
type mint struct {
	t      testing.TB
	dir    string
	serial int64
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pair Pair
}

func (m *mint) authority(name string) *authority {
	m.t.Helper()
	template := m.template(name)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	key := m.key()
	return m.sign(name, template, key, &authority{cert: template, key: key})
}

func (m *mint) issue(name string, by *authority, hosts []string) Pair {
	m.t.Helper()
	template := m.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return m.sign(name, template, m.key(), by).pair
}

func (m *mint) template(name string) *x509.Certificate {
	m.serial++
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(m.serial),
		Subject:      pkix.Name{CommonName: "zktest " + name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}

func (m *mint) key() *ecdsa.PrivateKey {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	m.must(err)
	return key
}

func (m *mint) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey, by *authority) *authority {
	m.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	m.must(err)
	cert, err := x509.ParseCertificate(der)
	m.must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	m.must(err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return &authority{cert: cert, key: key, pair: Pair{
		Cert: m.write(name+".crt.pem", certPEM),
		Key:  m.write(name+".key.pem", keyPEM),
		Both: m.write(name+".both.pem", bytes.Join([][]byte{keyPEM, certPEM}, nil)),
	}}
}

func (m *mint) write(name string, text []byte) string {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	m.must(os.WriteFile(path, text, 0o600))
	return path
}

func (m *mint) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}
