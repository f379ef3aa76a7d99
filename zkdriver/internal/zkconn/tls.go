package zkconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// TLS says how connections are encrypted. The zero value means that connections
// are not encrypted.
type TLS struct {
	On            bool
	CA, Cert, Key string      // names of PEM files; an empty CA means the system's certificates
	ServerName    string      // the name that the server's certificate must have; if empty, that of the host
	Config        *tls.Config // if set, it is used in place of the files
}

// load returns the configuration of connections, or nil for plain ones. It
// reads the files again each time.
func (t TLS) load() (*tls.Config, error) {
	if !t.On {
		return nil, nil
	}
	if t.Config != nil {
		c := t.Config.Clone()
		if t.ServerName != "" {
			c.ServerName = t.ServerName
		}
		return c, nil
	}
	c, err := t.readFiles()
	if err != nil {
		return nil, &tlsFilesError{err}
	}
	return c, nil
}

// tlsFilesError is an error of the files that TLS names.
type tlsFilesError struct{ err error }

func (e *tlsFilesError) Error() string { return e.err.Error() }
func (e *tlsFilesError) Unwrap() error { return e.err }

func (t TLS) readFiles() (*tls.Config, error) {
	c := &tls.Config{ServerName: t.ServerName, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("zkdriver: tls_ca: %w", printableError{err})
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("zkdriver: tls_ca: no certificate in %s", Printable(t.CA))
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("zkdriver: tls_cert and tls_key: %w", printableError{err})
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// tlsFor returns the configuration for one host. The server's certificate must
// have the name of the host, unless the configuration gives another name.
func tlsFor(c *tls.Config, address string) *tls.Config {
	if c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	return c
}

// CertificateError reports whether an error of Dial is about TLS files or
// certificates, which means that a file is unusable, or that one side refuses
// the other's certificate.
func CertificateError(err error) bool {
	var files *tlsFilesError
	return errors.As(err, &files) || certificateRefused(err)
}

// certificateRefused reports whether a TLS handshake failed because one side
// refuses the other's certificate. Another attempt would then fail as well.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	var alert *net.OpError // an alert of the other side is reported as this type
	return errors.As(err, &verification) || errors.As(err, &alert) && alert.Op == "remote error"
}
