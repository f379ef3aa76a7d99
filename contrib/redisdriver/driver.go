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

// Driver opens connectors to Redis. The zero Driver is ready to use. The package
// comment describes the data source names.
type Driver struct{}

// OpenConnector parses a data source name. It does no I/O. An error says which part is
// wrong, and repeats no value.
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	return &connector{settings: s, addrs: s.addrs}, nil
}

type connector struct {
	settings *settings

	mu     sync.Mutex
	warned bool     // Connect has checked the server's settings, and has logged its warnings
	addrs  []string // the order in which the next session tries the addresses
}

// Connect begins a session. Before the first session it reads the server's settings
// for persistence, and logs which guarantees they do not give.
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
	s.calls.Go(func() { s.lease.Keep(s.beat) })
	return s, nil
}

// learn says in which order a call of Connect has tried the addresses in the end, and
// its error. After an error the next call begins with another address, because a server
// may accept connections and never answer.
func (c *connector) learn(addrs []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addrs = addrs
	if err != nil {
		c.addrs = append(slices.Clone(addrs[1:]), addrs[0])
	}
}

// begin subscribes to the session's channel and begins the session. The lease counts
// from the sending of the last request, so the time for the dial and for TLS does not
// shorten it.
func (c *connector) begin(ctx context.Context, s *session) (*redis.PubSub, error) {
	if err := c.checkServer(ctx, s); err != nil {
		return nil, err
	}
	subscription, err := s.subscribe(ctx)
	if err != nil {
		return subscription, err
	}
	err = s.lease.Begin(func() error {
		_, err := s.link.eval(ctx, s.link.upkeep, openScript, s.id, s.settings.timeout.Microseconds())
		return err
	})
	return subscription, cmp.Or(err, ctx.Err())
}
