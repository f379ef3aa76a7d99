package zkdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
)

// Driver is the ZooKeeper driver. Its zero value is registered as "zk". An
// application with its own TLS configuration uses its own Driver:
//
//	connector, err := zkdriver.Driver{TLS: config}.OpenConnector("zk://zk1:2281/locks")
//	client := dlock.NewClient(connector)
type Driver struct {
	// TLS, if set, is used for all connections, as if the data source name
	// said tls=true. OpenConnector then refuses tls_ca, tls_cert and
	// tls_key. If ServerName is empty, the certificate must name the host
	// in the data source name.
	TLS *tls.Config
	// Password, if set, is called for each session and returns the user's
	// password. The data source name must then have a user but no password.
	Password func(ctx context.Context) (string, error)
}

// OpenConnector parses a data source name, without I/O. Its error names the
// invalid part, but never the password.
//
// The password file is read for each Connect, and the TLS files for each
// connection. Connect fails if they cannot be read, do not match, or are
// refused. Before the connector's first session, this error is permanent. Later
// it matches driver.ErrUnavailable.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if d.TLS != nil {
		if s.files.CA+s.files.Cert != "" {
			return nil, errors.New("zkdriver: dsn: tls_ca, tls_cert and tls_key are not for a Driver that has a TLS configuration")
		}
		s.tls, s.tlsConfig = true, d.TLS
	}
	if err := s.secret.Check(false, d.Password); err != nil {
		return nil, fmt.Errorf("zkdriver: dsn: %w", err)
	}
	if err := s.checkACL(); err != nil {
		return nil, err
	}
	return &connector{settings: s}, nil
}

type connector struct {
	settings   *settings
	hadSession atomic.Bool // whether a session has ever begun: see certificateError
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	settings := *c.settings
	password, err := settings.secret.Read(ctx)
	if err != nil {
		return nil, c.certificateError(fmt.Errorf("zkdriver: connect: %w", err))
	}
	settings.password = func() string { return password }
	s, err := connect(ctx, &settings)
	if err != nil {
		return nil, c.certificateError(err)
	}
	c.hadSession.Store(true)
	return s, nil
}

// certificateError makes TLS errors retryable after a first session, because
// the files were valid then.
func (c *connector) certificateError(err error) error {
	if c.hadSession.Load() && dsn.Untrusted(err) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

func init() { dlock.Register("zk", Driver{}) }
