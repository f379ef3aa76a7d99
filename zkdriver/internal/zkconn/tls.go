package zkconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/dlock-go/dlock/driver/dsn"
)

// TLS says how connections are encrypted. The zero value stands for no
// encryption.
type TLS struct {
	On     bool
	Files  dsn.TLS
	Config *tls.Config // if set, replaces the files
}

// load returns the configuration of connections, or nil for plain ones. It
// rereads the files each time.
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

// tlsFor returns the configuration for one host, whose certificate must name
// the host unless the configuration gives another name.
func tlsFor(c *tls.Config, address string) *tls.Config {
	if c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	return c
}

// CertificateError reports whether an error of Dial is about TLS files or
// certificates: a file is unusable, or one side refuses the other's
// certificate.
func CertificateError(err error) bool {
	var files *dsn.FileError
	return errors.As(err, &files) || certificateRefused(err)
}

// certificateRefused reports whether a TLS handshake failed because one side
// refuses the other's certificate, so that another attempt would fail as well.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	var alert *net.OpError // an alert of the other side is reported as this type
	return errors.As(err, &verification) || errors.As(err, &alert) && alert.Op == "remote error"
}
