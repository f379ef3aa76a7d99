package handmade

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(pgtest.Main(m))) }

const bound = 2 * time.Minute

type setting struct {
	kind    string
	servers []string      // data source names or addresses
	expiry  time.Duration // of the lock; for dlock, the session timeout
	ahead   time.Duration // how far the contender's clock is ahead
}

type locker interface {
	// lock returns the token 0 if the lock has none.
	lock(ctx context.Context) (token int64, err error)
	// check returns an error if the contender knows of a loss without a
	// request.
	check() error
	// unlock returns an error if it can tell that the lock was no longer held.
	unlock(ctx context.Context) error
	close() error
}

// A contender calls a lock's methods when the test tells it to.
type contender struct {
	t testing.TB
	locker
	token   int64
	waiting chan struct{} // receives when a call waits; capacity 1
	locked  chan error
	stop    string        // name of the step at which reach blocks
	at      chan struct{} // see reach
}

func start(t testing.TB, s setting) *contender {
	t.Helper()
	c := &contender{t: t, waiting: make(chan struct{}, 1), at: make(chan struct{})}
	var err error
	c.locker, err = newLocker(s, c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.close() }) // the server may be down
	return c
}

func (c *contender) wait() {
	select {
	case c.waiting <- struct{}{}:
	default:
	}
}

// reach blocks at c.stop until the test has received twice from c.at.
func (c *contender) reach(place string) {
	for i := 0; i < 2 && c.stop == place; i++ {
		select {
		case c.at <- struct{}{}:
		case <-c.t.Context().Done():
		}
	}
}

func (c *contender) retry(ctx context.Context, try func() (bool, error)) error {
	for {
		if ok, err := try(); ok || err != nil || ctx.Err() != nil {
			return cmp.Or(err, ctx.Err())
		}
		c.wait()
		c.reach("retry")
		time.Sleep(5 * time.Millisecond)
	}
}

func (c *contender) begin() {
	locked := make(chan error, 1)
	c.locked = locked
	go func() {
		var err error
		c.token, err = c.lock(c.t.Context())
		locked <- err
	}()
}

func (c *contender) granted() {
	c.t.Helper()
	select {
	case err := <-c.locked:
		require.NoError(c.t, err)
	case <-time.After(bound):
		require.FailNow(c.t, "the lock is not granted")
	}
}

func (c *contender) holds() {
	c.t.Helper()
	c.begin()
	c.granted()
}

func (c *contender) waits() bool {
	c.begin()
	select {
	case <-c.waiting:
		return true
	case err := <-c.locked:
		require.NoError(c.t, err)
		return false
	}
}

func (c *contender) gives() error { return c.unlock(c.t.Context()) }

// A resource refuses a write with a lower token than an earlier write.
type resource struct{ token int64 }

func (r *resource) write(c *contender) (accepted bool) {
	if c.token >= r.token {
		r.token, accepted = c.token, true
	}
	return accepted
}
