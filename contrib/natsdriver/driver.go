package natsdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

func init() { dlock.Register("nats", Driver{}) }

// Driver implements [driver.Driver] for NATS JetStream. The zero value is ready
// to use. The package documentation describes the data source name.
type Driver struct{}

// OpenConnector parses a data source name. It does no I/O. Errors say which
// part is wrong but never quote a password.
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("natsdriver: dsn: %w", err)
	}
	return &connector{settings: s, met: make(map[string]time.Time)}, nil
}

// Options are the settings for [NewConnector]. A zero field has the default
// value of the corresponding parameter in a data source name.
type Options struct {
	Stream         string
	SessionTimeout time.Duration
	Grace          time.Duration
	Replicas       int
	EmptyIsNew     bool
}

// NewConnector returns a connector for the servers of an existing connection. It
// takes over the connection's options, such as login, TLS, dialer and inbox
// prefix, but no callbacks. With them, each session opens a connection of its
// own, so that heartbeats do not wait for the program's messages. Closing the
// given connection leaves the sessions open.
//
// NewConnector does no I/O. It returns an error if an option is invalid.
func NewConnector(nc *nats.Conn, o Options) (driver.Connector, error) {
	if nc == nil {
		return nil, errors.New("natsdriver: the connection is nil")
	}
	s := &settings{stream: cmp.Or(o.Stream, defaultStream), timeout: cmp.Or(o.SessionTimeout, defaultTimeout), grace: o.Grace,
		replicas: o.Replicas, emptyNew: o.EmptyIsNew, options: func() (nats.Options, error) { return nc.Opts, nil }}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("natsdriver: %w", err)
	}
	return &connector{settings: s, met: make(map[string]time.Time)}, nil
}

type connector struct {
	settings *settings

	mu  sync.Mutex
	met map[string]time.Time // guarded by mu; when this process first saw a generation
}

// Connect begins a session. It creates the stream if there is none.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	kv := c.open()
	return made(cas.Connect(ctx, kv, c.config(kv)))
}

// Observe implements [driver.Observer].
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	kv := c.open()
	kv.observes = true
	return made(cas.Observe(ctx, kv, c.config(kv)))
}

func made(s *session.Session, err error) (driver.Session, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (c *connector) open() *kv {
	return &kv{settings: c.settings, since: c.since, subjects: subjects(c.settings.stream)}
}

func (c *connector) config(kv *kv) session.Config {
	return session.Config{Name: "natsdriver", Timeout: c.settings.timeout, Server: kv.address}
}

// since returns when this process first saw a generation.
func (c *connector) since(generation string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.met[generation]; !ok {
		c.met[generation] = time.Now()
	}
	return c.met[generation]
}
