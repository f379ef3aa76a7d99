package redisdriver

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
)

// Isolate implements [driver.Isolator] by inserting i.Name after the namespace
// in all keys. Because the keys keep their namespace, the user's permissions
// still apply, and a cluster stores the keys on the same server.
func (c *connector) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	s := *c.settings
	s.part += i.Name + ":"
	s.dial = i.Dial
	s.emptyNew = true // no other client uses these keys
	if i.SessionTimeout > 0 {
		s.timeout, s.grace = i.SessionTimeout, 0
	}
	plain := s
	plain.dial = c.settings.dial
	return &connector{settings: &s, quiet: true, addrs: s.addrs}, func(ctx context.Context) error { return removePart(ctx, &plain) }, nil
}

// removePart removes all keys of an isolated connector.
func removePart(ctx context.Context, s *settings) error {
	l := newLink(s)
	defer l.close()
	if _, err := l.eval(ctx, l.upkeep, closeScript, "none"); err != nil { // has no effect, but follows redirects to the master
		return err
	}
	for cursor := uint64(0); ; {
		keys, err := do(ctx, l, l.upkeep, func(c *redis.Client) (keys []string, err error) {
			keys, cursor, err = c.Scan(ctx, cursor, glob(s.key(""))+"*", 1000).Result()
			return keys, err
		})
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if _, err := do(ctx, l, l.upkeep, func(c *redis.Client) (int64, error) { return c.Del(ctx, keys...).Result() }); err != nil {
				return err
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// Lease returns the session's lease, for the conformance tests.
func (s *session) Lease() *driver.Lease { return s.lease }
