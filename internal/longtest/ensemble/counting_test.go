package ensemble

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// counting runs clients that increment a counter under one lock. They read and
// write it in two steps, so that two simultaneous holders would lose
// increments.
type counting struct {
	counter  atomic.Int64 // guarded by the lock under test; atomic only for the race detector
	counts   atomic.Int64 // increments by all clients
	inside   atomic.Int32
	overlaps atomic.Int32
	refused  atomic.Int32 // writes that a resource would refuse by their token
	highest  atomic.Int64 // highest token so far
	losses   atomic.Int32
	errors   chan error

	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startCounting(t testing.TB, dsns ...string) *counting {
	t.Helper()
	c := &counting{errors: make(chan error, len(dsns))}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for _, dsn := range dsns {
		client := open(t, dsn)
		c.done.Go(func() { c.run(ctx, client.RWMutex("counting")) })
	}
	t.Cleanup(func() { cancel(); c.done.Wait() })
	return c
}

func (c *counting) run(ctx context.Context, m *dlock.RWMutex) {
	for ctx.Err() == nil {
		l, err := m.Lock(ctx)
		if ctx.Err() != nil {
			if err == nil {
				l.Unlock()
			}
			return
		}
		if err != nil {
			c.errors <- err
			return
		}
		c.count(l)
		// Ignore the error. If Unlock fails, the client removes the
		// node later, or the node ends with its session.
		l.Unlock()
	}
}

// count increments the counter within milliseconds. Even if the lock is lost
// meanwhile, count is done before the store grants the lock again.
func (c *counting) count(l *dlock.Lock) {
	if c.inside.Add(1) != 1 {
		c.overlaps.Add(1)
	}
	defer c.inside.Add(-1)
	was := c.counter.Load()
	time.Sleep(2 * time.Millisecond)
	if l.Err() != nil {
		c.losses.Add(1)
		return
	}
	c.counter.Store(was + 1)
	c.counts.Add(1)
	if highest := c.highest.Load(); l.Token() <= highest {
		c.refused.Add(1)
	} else {
		c.highest.Store(l.Token())
	}
}

// progress waits for the given number of further increments. It fails the test
// if they take too long.
func (c *counting) progress(t testing.TB, more int64) {
	t.Helper()
	if !c.goesOn(t, more) {
		t.Fatalf("not within %v: the clients go on counting", bound)
	}
}

// goesOn reports whether the clients make the given number of further
// increments in time.
func (c *counting) goesOn(t testing.TB, more int64) bool {
	t.Helper()
	from := c.counts.Load()
	for end := time.Now().Add(bound); c.counts.Load() < from+more; time.Sleep(2 * time.Millisecond) {
		select {
		case err := <-c.errors:
			t.Fatal(err)
		default:
		}
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (c *counting) stop(t testing.TB) {
	t.Helper()
	c.cancel()
	c.done.Wait()
	close(c.errors)
	for err := range c.errors {
		t.Error(err)
	}
	t.Logf("counted %d times, %d locks lost", c.counts.Load(), c.losses.Load())
	require.Equal(t, c.counts.Load(), c.counter.Load(), "lost updates")
	require.Zero(t, c.overlaps.Load(), "two clients held the lock at once")
	require.Zero(t, c.refused.Load(), "tokens out of order")
}
