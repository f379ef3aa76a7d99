package zkdriver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// loadTLS returns what connections use, or nil for plain ones.
func (s *settings) loadTLS() (*tls.Config, error) {
	if !s.tls {
		return nil, nil
	}
	if s.tlsConfig != nil {
		c := s.tlsConfig.Clone()
		if s.tlsServerName != "" {
			c.ServerName = s.tlsServerName
		}
		return c, nil
	}
	c, err := s.readTLS()
	if err != nil {
		return nil, &tlsFilesError{err}
	}
	return c, nil
}

// tlsFilesError is an error of the files that a data source name mentions.
type tlsFilesError struct{ err error }

func (e *tlsFilesError) Error() string { return e.err.Error() }
func (e *tlsFilesError) Unwrap() error { return e.err }

func (s *settings) readTLS() (*tls.Config, error) {
	c := &tls.Config{ServerName: s.tlsServerName, MinVersion: tls.VersionTLS12}
	if s.tlsCA != "" {
		pem, err := os.ReadFile(s.tlsCA)
		if err != nil {
			return nil, fmt.Errorf("zkdriver: tls_ca: %w", printableError{err})
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("zkdriver: tls_ca: no certificate in %s", Printable(s.tlsCA))
		}
	}
	if s.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("zkdriver: tls_cert and tls_key: %w", printableError{err})
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// tlsFor returns the configuration for one host, whose name the certificate has to bear.
func tlsFor(c *tls.Config, address string) *tls.Config {
	if c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	return c
}

// certificateRefused tells whether a TLS handshake failed for a reason that another try will not mend: one
// side does not accept the other's certificate.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	var alert *net.OpError // crypto/tls reports what the other side says as one, with this Op
	return errors.As(err, &verification) || errors.As(err, &alert) && alert.Op == "remote error"
}
