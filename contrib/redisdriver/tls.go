package redisdriver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// tlsFiles says how connections use TLS. The files are read for each session.
type tlsFiles struct {
	ca, cert, key, serverName string
	skipVerify                bool
}

// config returns the configuration for a server at addr.
func (f *tlsFiles) config(addr string) (*tls.Config, error) {
	c := &tls.Config{ServerName: f.serverName, InsecureSkipVerify: f.skipVerify, MinVersion: tls.VersionTLS12}
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("tls: %w", err)
		}
		c.ServerName = host
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("%w: tls_ca: %w", errBadFile, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: tls_ca: %s holds no certificate", errBadFile, f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("%w: tls_cert and tls_key: %w", errBadFile, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

var errBadFile = errors.New("a TLS file cannot be used")
