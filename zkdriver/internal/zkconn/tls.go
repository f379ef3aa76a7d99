package zkconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/dlock-go/dlock/driver/dsn"
)

// TLS configures the encryption of connections. The zero value means none.
type TLS struct {
	On     bool
	Files  dsn.TLS
	Config *tls.Config // if set, replaces the files
}

// load returns the TLS configuration, or nil if TLS is off. It rereads the
// files each time.
func (t TLS) load() (*tls.Config, error) {
	if !t.On {
		return nil, nil
	}
	if t.Config != nil {
		c := t.Config.Clone()
		if t.Files.ServerName != "" {
			c.ServerName = t.Files.ServerName
		}
		return c, nil
	}
	c, err := t.Files.Config()
	if err != nil {
		return nil, fmt.Errorf("zkdriver: %w", printableError{err})
	}
	return c, nil
}

// For returns the configuration for connections to a host, or nil if TLS is
// off. It rereads the files each time.
func (t TLS) For(host string) (*tls.Config, error) {
	c, err := t.load()
	if c == nil || err != nil {
		return nil, err
	}
	return tlsFor(c, net.JoinHostPort(host, "0")), nil
}

// tlsFor returns the configuration for one host. The certificate must name that
// host unless the configuration gives another name.
func tlsFor(c *tls.Config, address string) *tls.Config {
	if c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	return c
}

// CertificateError reports whether an error of Dial means that the TLS files
// are unusable or that a certificate was refused.
func CertificateError(err error) bool {
	var files *dsn.FileError
	return errors.As(err, &files) || certificateRefused(err)
}

// certificateRefused reports whether err means that one side has refused the
// other's certificate. Another attempt would then fail as well.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	var alert *net.OpError // the type of an error that reports an alert of the other side
	return errors.As(err, &verification) || errors.As(err, &alert) && alert.Op == "remote error"
}
