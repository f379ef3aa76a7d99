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
// application with its own TLS configuration uses its own Driver:
//
//	connector, err := zkdriver.Driver{TLS: config}.OpenConnector("zk://zk1:2281/locks")
//	client := dlock.NewClient(connector)
type Driver struct {
	// TLS, if set, is the configuration of all connections, as if the data
	// source name said tls=true. It replaces tls_ca, tls_cert and tls_key,
	// which OpenConnector then refuses. If it has no ServerName, the
	// certificate must name the host in the data source name.
	TLS *tls.Config
}

// OpenConnector parses a data source name, whose form the package documentation
// describes. It does no I/O and does not block. Its error names the part that
// is wrong and never repeats the password.
//
// Each Connect reads the TLS files, so that renewed certificates are used.
// Connect fails if the files cannot be read, do not match, or are refused.
// Until the connector has begun its first session, that error does not match
// driver.ErrUnavailable and is not retried. After that it does match
// driver.ErrUnavailable, because the files may be in the course of being
// replaced.
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
	trusted  atomic.Bool // whether a session has ever begun, which shows that the TLS files were right then
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	s, err := connect(ctx, c.settings)
	if err != nil {
		return nil, c.certificateError(err)
	}
	c.trusted.Store(true)
	return s, nil
}

// certificateError makes an error caused by TLS files or certificates match
// driver.ErrUnavailable, so that callers retry, if a session has begun before:
// the files were right then, and are probably being replaced, which takes
// several steps. Before the first session such an error is a configuration
// mistake, and is returned unchanged.
func (c *connector) certificateError(err error) error {
	if c.trusted.Load() && zkconn.CertificateError(err) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}
