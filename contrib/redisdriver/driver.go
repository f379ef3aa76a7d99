package redisdriver

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func init() { dlock.Register("redis", Driver{}) }

// Driver implements [driver.Driver] for Redis. The zero value is ready to use.
// The package documentation describes the data source name.
type Driver struct {
	// Password, if not nil, returns the password for each new connection, such
	// as a cloud service's token. The data source name must then have none.
	Password func(ctx context.Context) (string, error)
}

// OpenConnector parses a data source name. It does no I/O. Errors say which
// part is wrong but never quote a value, because it may be a password.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if err := s.checkSecrets(d.Password); err != nil {
		return nil, fmt.Errorf("redisdriver: dsn: %w", err)
	}
	return &connector{settings: s, addrs: s.addrs}, nil
}

type connector struct {
	settings *settings
	quiet    bool // do not log warnings
	trust    session.Trust

	mu    sync.Mutex
	told  map[string]bool // keys of the messages that tellOnce has logged
	addrs []string        // tried in this order by the next Connect
}

// Connect begins a session. It fails if the server may evict locks, and logs a
// warning if the server does not show its settings. About once a minute, a
// session checks this again, and ends if the server may evict locks.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	return c.connect(ctx, strings.ToLower(rand.Text()[:16]))
}

// Observe implements [driver.Observer]. It also works on a replica, and on a
// server whose memory is full.
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	return c.connect(ctx, observer)
}

// observer is the ID of every session that only observes.
const observer = ""

func (c *connector) connect(ctx context.Context, id string) (driver.Session, error) {
	b := &backend{settings: c.settings, connector: c, id: id, secret: rand.Text(), link: newLink(c.settings)}
	c.mu.Lock()
	b.link.addrs = c.addrs
	c.mu.Unlock()
	s, err := b.connect(ctx)
	order := b.link.order()
	if err != nil { // may never answer, so try it last
		order = append(slices.Clone(order[1:]), order[0])
	}
	c.mu.Lock()
	c.addrs = order
	c.mu.Unlock()
	if err != nil {
		b.link.close()
	}
	return c.trust.Result(s, err)
}

// connect subscribes before it begins the session, because a slow dial would
// otherwise use up part of the lease.
func (b *backend) connect(ctx context.Context) (s *session.Session, err error) {
	config := session.Config{Name: "redisdriver", ID: b.id, Timeout: b.timeout, Server: b.link.address,
		Requests: b.options().PoolSize, Busy: "raise pool_size or make fewer calls at once"}
	if b.id == observer {
		return session.Observe(ctx, b, b.link.close, config)
	}
	if err = b.connector.checkServer(ctx, b); err == nil {
		b.first, err = b.subscribe(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("redisdriver: connect: %w", err)
	}
	return session.Connect(ctx, b, config)
}
