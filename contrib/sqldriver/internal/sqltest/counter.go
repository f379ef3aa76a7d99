package sqltest

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// Counter counts the requests of a session and checks that each takes one round
// trip.
type Counter struct {
	RoundTrips func() int // round trips of the session so far

	mu     sync.Mutex
	sent   map[string]int // by method, since Reset
	before int            // round trips until Reset
}

// Count counts a request and sends it. Pass it to hooks.Requests.Intercept.
func (c *Counter) Count(ctx context.Context, method string, send func(context.Context) error) error {
	c.mu.Lock()
	if c.sent == nil {
		c.sent = make(map[string]int)
	}
	c.sent[method]++
	c.mu.Unlock()
	return send(ctx)
}

// Reset forgets the requests and round trips counted so far.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.sent)
	c.before = c.RoundTrips()
}

// Expect returns an error unless the requests since Reset are those in want, by
// method, and each took one round trip.
func (c *Counter) Expect(want map[string]int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, n := range c.sent {
		total += n
	}
	if n := c.RoundTrips() - c.before; !maps.Equal(c.sent, want) || n != total {
		return fmt.Errorf("the session sent %v in %d round trips, want %v", c.sent, n, want)
	}
	return nil
}
