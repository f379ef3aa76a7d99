package natsdriver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
		return nil, err
	}
	return &connector{settings: s}, nil
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

// NewConnector returns a connector for the servers that an existing connection
// uses. It takes over the connection's options: servers, login, TLS, dialer and
// inbox prefix, but no callbacks. With them, each session opens a connection of
// its own, so that heartbeats do not wait for the program's messages. Closing
// the given connection leaves the sessions open.
//
// NewConnector does no I/O. It returns an error if an option is invalid.
func NewConnector(nc *nats.Conn, options Options) (driver.Connector, error) {
	if nc == nil {
		return nil, errors.New("natsdriver: the connection is nil")
	}
	s := &settings{stream: defaultStream, timeout: defaultTimeout, emptyNew: options.EmptyIsNew,
		options: func() (nats.Options, error) { return nc.Opts, nil }}
	if options.Stream != "" {
		s.stream = options.Stream
	}
	own := s.parameters()
	for _, o := range []struct {
		field, parameter, value string
		given                   bool
	}{
		{"SessionTimeout", "session_timeout", options.SessionTimeout.String(), options.SessionTimeout != 0},
		{"Grace", "grace", options.Grace.String(), options.Grace != 0},
		{"Replicas", "replicas", strconv.Itoa(options.Replicas), options.Replicas != 0},
	} {
		if o.given {
			if err := own[o.parameter](o.value); err != nil {
				return nil, fmt.Errorf("natsdriver: Options.%s: %w", o.field, err)
			}
		}
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("natsdriver: %w", err)
	}
	return &connector{settings: s}, nil
}

type connector struct {
	settings *settings

	mu  sync.Mutex
	met map[string]time.Time // when this process first saw a generation
}

// Connect begins a session. It creates the stream if there is none.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	kv := c.open()
	s, err := cas.Connect(ctx, kv, c.config(kv))
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Observe implements [driver.Observer]. It creates nothing.
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	kv := c.open()
	kv.observes = true
	s, err := cas.Observe(ctx, kv, c.config(kv))
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
	if c.met == nil {
		c.met = make(map[string]time.Time)
	}
	if _, ok := c.met[generation]; !ok {
		c.met[generation] = time.Now()
	}
	return c.met[generation]
}
