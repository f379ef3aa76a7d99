package redisdriver

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

func init() { dlock.Register("redis", Driver{}) }

// Driver implements [driver.Driver] for Redis. The zero value is ready to use.
// The package documentation describes the data source name.
type Driver struct{}

// OpenConnector parses a data source name. It does no I/O. Errors say which
// part is wrong but never quote a value, because it may be a password.
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return &connector{settings: s, addrs: s.addrs}, nil
}

type connector struct {
	settings *settings
	quiet    bool // do not log warnings

	mu     sync.Mutex
	told   map[string]bool // keys of the messages that tellOnce has logged
	warned bool            // whether the server's settings have been checked, and warned of
	addrs  []string        // in the order that the next Connect tries them
}

// Connect begins a session. The first call also checks the server's settings.
// It fails if the server may evict locks, and logs a warning if the server does
// not show its settings.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	s := &session{
		settings: c.settings,
		id:       strings.ToLower(rand.Text()[:16]),
		lease:    driver.NewLease(c.settings.timeout, 0),
		link:     newLink(c.settings),
		news:     make(chan struct{}, 1),
	}
	s.notices.watches = &s.watches
	c.mu.Lock()
	s.link.addrs = c.addrs
	c.mu.Unlock()
	subscription, err := c.begin(ctx, s)
	c.learn(s.link.order(), err)
	if err != nil {
		s.lease.End(err)
		s.link.close()
		if subscription != nil {
			_ = subscription.Close()
		}
		return nil, fmt.Errorf("redisdriver: connect: %w", err)
	}
	s.calls.Go(func() { s.listen(subscription) })
	s.calls.Go(s.checkWatches)
	s.calls.Go(func() { s.lease.Run(s.beat) })
	return s, nil
}

// learn stores the order in which the next Connect tries the addresses. After a
// failure, the first address moves to the end, so that Connect does not always
// start with a server that accepts connections but never answers.
func (c *connector) learn(addrs []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addrs = addrs
	if err != nil {
		c.addrs = append(slices.Clone(addrs[1:]), addrs[0])
	}
}

// begin creates the session in the store and subscribes to its channel. The
// lease starts when the last request is sent, so that slow dials and TLS
// handshakes don't shorten it.
func (c *connector) begin(ctx context.Context, s *session) (*redis.PubSub, error) {
	if err := c.checkServer(ctx, s); err != nil {
		return nil, err
	}
	subscription, err := s.subscribe(ctx)
	if err != nil {
		return subscription, err
	}
	return subscription, cmp.Or(c.awaitGrace(ctx, s), ctx.Err())
}
