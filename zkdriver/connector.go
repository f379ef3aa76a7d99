package zkdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Driver is the ZooKeeper driver. Its zero value is registered as "zk"; an application that
// brings its own TLS configuration makes one of its own:
//
//	connector, err := zkdriver.Driver{TLS: config}.OpenConnector("zk://zk1:2281/locks")
//	client := dlock.NewClient(connector)
type Driver struct {
	// TLS, if set, is what connections use: as if the data source name said tls=true, and in
	// place of its tls_ca, tls_cert and tls_key, which are refused. Where it has no ServerName,
	// the name of the host in the data source name is checked.
	TLS *tls.Config
}

// OpenConnector parses a data source name; the package documentation describes
// it. It does no I/O: files that the name mentions are read by every Connect,
// so that renewed certificates are taken up. If they cannot be read, do not fit
// together, or are refused, the error of Connect matches driver.ErrUnavailable
// after the first session of the connector has begun, since they may be about
// to be replaced; before that it does not, and is not tried again. An error
// names the part that is wrong and never repeats the password.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if d.TLS != nil {
		if s.tlsCA+s.tlsCert != "" {
			return nil, errors.New("zkdriver: dsn: tls_ca, tls_cert and tls_key are not for a Driver that has a TLS configuration")
		}
		s.tls, s.tlsConfig = true, d.TLS
	}
	if err := s.checkACL(); err != nil {
		return nil, err
	}
	return &connector{settings: s}, nil
}

type connector struct {
	settings *settings
	trusted  atomic.Bool // a session has begun: the TLS files were right once
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	s, err := connect(ctx, c.settings)
	if err != nil {
		return nil, c.rotating(err)
	}
	c.trusted.Store(true)
	return s, nil
}

// rotating marks errors of TLS files and certificates as passing ones once a
// session has begun. They were right then, so they are being replaced now,
// which takes more than one step. Before that they are mistakes in the
// settings, of which the user is to hear at once.
func (c *connector) rotating(err error) error {
	if c.trusted.Load() && zkconn.CertificateError(err) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
