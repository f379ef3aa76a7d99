package natsdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

func init() { dlock.Register("nats", Driver{}) }

// Driver implements [driver.Driver] for NATS JetStream. The zero value is ready
// to use. The package documentation describes the data source name.
type Driver struct {
	// Password, if not nil, returns the password for each new connection, such
	// as an expiring token. The data source name then has only the user.
	Password func(ctx context.Context) (string, error)
}

// OpenConnector parses a data source name. It does no I/O. Errors say which
// part is wrong but never quote a password.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn, d.Password)
	return newConnector(s, err, "natsdriver: dsn")
}

// NewConnector returns a connector for the servers of an existing connection.
// Each session opens its own connection with the same options, such as login
// and dialer, but without callbacks. Closing the given connection leaves the
// sessions open.
//
// The parameters are those of a data source name, such as
// "session_timeout=30s&replicas=3". An empty stream name means dlock.
// NewConnector does no I/O.
func NewConnector(nc *nats.Conn, stream, parameters string) (driver.Connector, error) {
	if nc == nil {
		return nil, errors.New("natsdriver: the connection is nil")
	}
	s, err := newSettings(stream, parameters, nil)
	s.options, s.servers = func(context.Context) (nats.Options, error) { return nc.Opts, nil }, nc.ConnectedAddr()
	return newConnector(s, err, "natsdriver")
}

func newConnector(s *settings, err error, what string) (driver.Connector, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return &connector{settings: s}, nil
}

type connector struct {
	settings *settings
	trust    session.Trust
	met      sync.Map // when this process first saw each generation
}

// Connect begins a session. It creates the stream if there is none.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	return c.trust.Result(cas.Connect(ctx, c.open(), c.config()))
}

// Observe implements [driver.Observer].
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	return c.trust.Result(cas.Observe(ctx, c.open(), c.config()))
}

func (c *connector) config() session.Config {
	return session.Config{Name: "natsdriver", Timeout: c.settings.timeout, Server: func() string { return c.settings.servers }}
}

func (c *connector) open() *kv {
	return &kv{settings: c.settings, met: &c.met, turn: make(chan struct{}, 1)}
}
