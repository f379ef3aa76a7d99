package testenv

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
	"strings"
	"testing"
	"time"
)

// Certs are certificates for tests, as PEM files.
type Certs struct {
	// CA has signed all certificates below except Stranger.
	CA, OtherCA string
	// Server is valid for localhost, 127.0.0.1 and ::1. OtherHost is valid only
	// for other.example. Expired is like Server, but has expired. Hostile is
	// valid only for names that would alter what a terminal shows.
	Server, OtherHost, Expired, Hostile Pair
	// Client and Stranger are client certificates. Stranger is signed by
	// OtherCA.
	Client, Stranger Pair
}

// Pair names the files of a certificate and its key. Both contains the key
// followed by the certificate, for servers that expect a single file.
type Pair struct{ Cert, Key, Both string }

// NewCerts creates certificates in a directory that is removed when the test
// ends.
func NewCerts(t testing.TB) *Certs {
	t.Helper()
	i := &issuer{t: t, dir: t.TempDir()}
	ca, other := i.authority("ca"), i.authority("other-ca")
	here := []string{"localhost", "127.0.0.1", "::1"}
	past := &issuer{t: t, dir: i.dir, serial: 100, age: 48 * time.Hour}
	return &Certs{
		CA:        ca.pair.Cert,
		OtherCA:   other.pair.Cert,
		Server:    i.issue("server", ca, here),
		OtherHost: i.issue("other-host", ca, []string{"other.example"}),
		Expired:   past.issue("expired", ca, here),
		Hostile:   i.issue("hostile", ca, []string{"x\x1b]0;owned\x07.example", "x\r\nWARN all is well", strings.Repeat("long.", 5000) + "example"}),
		Client:    i.issue("client", ca, here),
		Stranger:  i.issue("stranger", other, here),
	}
}

// ClientConfig returns a TLS configuration that trusts CA, presents Client, and
// expects a server named localhost.
func (c *Certs) ClientConfig(t testing.TB) *tls.Config {
	t.Helper()
	return &tls.Config{
		RootCAs:      Pool(t, c.CA),
		Certificates: []tls.Certificate{c.Client.Load(t)},
		ServerName:   "localhost",
	}
}

func Pool(t testing.TB, file string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		t.Fatalf("testenv: no certificate in %s", file)
	}
	return pool
}

func (p Pair) Load(t testing.TB) tls.Certificate {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

type issuer struct {
	t      testing.TB
	dir    string
	serial int64
	age    time.Duration // age given to certificates issued from now on
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pair Pair
}

func (i *issuer) authority(name string) *authority {
	i.t.Helper()
	template := i.template(name)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	key := i.key()
	return i.sign(name, template, key, &authority{cert: template, key: key})
}

func (i *issuer) issue(name string, by *authority, hosts []string) Pair {
	i.t.Helper()
	template := i.template(name)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return i.sign(name, template, i.key(), by).pair
}

func (i *issuer) template(name string) *x509.Certificate {
	i.serial++
	now := time.Now().Add(-i.age)
	return &x509.Certificate{
		SerialNumber: big.NewInt(i.serial),
		Subject:      pkix.Name{CommonName: "testenv " + name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}

func (i *issuer) key() *ecdsa.PrivateKey {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i.must(err)
	return key
}

func (i *issuer) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey, by *authority) *authority {
	i.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	i.must(err)
	cert, err := x509.ParseCertificate(der)
	i.must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	i.must(err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	return &authority{cert: cert, key: key, pair: Pair{
		Cert: i.write(name+".crt.pem", certPEM),
		Key:  i.write(name+".key.pem", keyPEM),
		Both: i.write(name+".both.pem", bytes.Join([][]byte{keyPEM, certPEM}, nil)),
	}}
}

func (i *issuer) write(name string, text []byte) string {
	i.t.Helper()
	path := filepath.Join(i.dir, name)
	i.must(os.WriteFile(path, text, 0o600))
	return path
}

func (i *issuer) must(err error) {
	i.t.Helper()
	if err != nil {
		i.t.Fatal(err)
	}
}
