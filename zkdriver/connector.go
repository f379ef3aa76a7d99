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

// Driver is the ZooKeeper driver. Its zero value is registered as "zk". An
// application that has a TLS configuration of its own makes a Driver of its
// own:
//
//	connector, err := zkdriver.Driver{TLS: config}.OpenConnector("zk://zk1:2281/locks")
//	client := dlock.NewClient(connector)
type Driver struct {
	// TLS, if set, is the configuration of all connections, as if the data
	// source name said tls=true. It is used in place of tls_ca, tls_cert and
	// tls_key, which OpenConnector then refuses. If it has no ServerName, the
	// certificate must have the name of the host in the data source name.
	TLS *tls.Config
}

// OpenConnector parses a data source name; the package documentation describes
// its form. OpenConnector does no I/O and does not block. Its error names the
// part that is wrong and never repeats the password.
//
// Each Connect of the connector reads the TLS files, so that it uses renewed
// certificates. Connect fails if the files cannot be read, do not fit together,
// or are refused. Before the first session of the connector has begun, that
// error does not match driver.ErrUnavailable, and no retry follows. After that
// the error does match driver.ErrUnavailable, because the files may be in the
// course of being replaced.
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
	if err := s.checkACL(); err != nil {
		return nil, err
	}
	return &connector{settings: s}, nil
}

type connector struct {
	settings *settings
	trusted  atomic.Bool // whether a session has ever begun, which shows that the TLS files were right at that time
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	s, err := connect(ctx, c.settings)
	if err != nil {
		return nil, c.certificateError(err)
	}
	c.trusted.Store(true)
	return s, nil
}

// certificateError decides whether callers retry after an error of TLS files or
// certificates. If a session has begun before, it returns an error that matches
// driver.ErrUnavailable, so that callers retry. The files were right then, so
// they are probably being replaced now, which takes more than one step. Before
// the first session, such an error is a mistake in the settings. Then
// certificateError returns the error as it is, and no retry follows.
func (c *connector) certificateError(err error) error {
	if c.trusted.Load() && zkconn.CertificateError(err) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
