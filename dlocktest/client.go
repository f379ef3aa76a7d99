package dlocktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

const lockName = "stock/42"

// A client is a dlock.Client that records the driver sessions it opens.
type client struct {
	*dlock.Client
	check *check

	mu       sync.Mutex
	sessions []driver.Session
}

func (c *check) client() *client {
	cl := &client{check: c}
	cl.Client = dlock.NewClient(recordingConnector{c.connector(), cl})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, cl.Client)
	return cl
}

// recordingConnector records a client's sessions. It does not wrap them,
// because Config hooks may type-assert the sessions that they get.
type recordingConnector struct {
	driver.Connector
	client *client
}

func (t recordingConnector) Connect(ctx context.Context) (driver.Session, error) {
	s, err := t.Connector.Connect(ctx)
	if err == nil {
		t.client.check.closeLater(s)
		t.client.mu.Lock()
		defer t.client.mu.Unlock()
		t.client.sessions = append(t.client.sessions, s)
	}
	return s, err
}

func (cl *client) session() driver.Session {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.sessions[len(cl.sessions)-1]
}

func (cl *client) close() {
	c := cl.check
	cl.mu.Lock()
	for _, s := range cl.sessions {
		c.expectEnd(s)
	}
	cl.mu.Unlock()
	if err := cl.Close(); err != nil {
		c.fatalf("Close of a client returned %q, expected success while the store can be reached", err)
	}
}

func (cl *client) lock() *dlock.Lock {
	return cl.check.won(cl.RWMutex(lockName).Lock(cl.check.ctx))
}

func (cl *client) rlock() *dlock.Lock {
	return cl.check.won(cl.RWMutex(lockName).RLock(cl.check.ctx))
}

func (c *check) won(l *dlock.Lock, err error) *dlock.Lock {
	if err != nil {
		c.fatalf("Lock or RLock returned %q, expected the lock in the end", err)
	}
	return l
}

// acquire is a method of an RWMutex that takes the lock, such as Lock or
// TryRLock.
type acquire func(ctx context.Context) (*dlock.Lock, error)

// try calls TryLock or TryRLock and retries while the store is unavailable,
// which these methods do not do themselves.
func (c *check) try(enter acquire) (l *dlock.Lock, err error) {
	c.retry("TryLock or TryRLock", func() error {
		l, err = enter(c.ctx)
		if errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		return nil
	})
	return l, err
}

func (c *check) unlock(l *dlock.Lock) {
	if err := l.Unlock(); err != nil {
		c.fatalf("Unlock of a lock that was held returned %q, expected success", err)
	}
}

// giveUp calls Lock and RLock n times. The ctx of each call ends while the call
// creates its node, which usually takes the given time, or, in every second
// call, while it waits for the lock.
func (cl *client) giveUp(n int, usual time.Duration, granted func(*dlock.Lock)) {
	m := cl.RWMutex(lockName)
	for i := range n {
		cl.check.exitIfAbandoned()
		after := usual
		if i%2 == 0 {
			after = 5 * time.Millisecond
		}
		ctx, cancel := soonEnded(cl.check.ctx, i/2, after)
		acquire := []acquire{m.Lock, m.RLock}[rand.N(2)]
		if l, err := acquire(ctx); err == nil {
			granted(l)
		}
		cancel()
	}
}

// idleLockIsFree checks that nothing of earlier calls holds the lock.
func (c *check) idleLockIsFree(s driver.Session) {
	c.unlock(c.granted(background(c.client().lock), "after all other calls had ended"))
	c.queued(s, 0)
}

func background(acquire func() *dlock.Lock) <-chan *dlock.Lock {
	won := make(chan *dlock.Lock, 1)
	go func() { won <- acquire() }()
	return won
}

// queue acquires a lock in the background. It returns when n nodes are queued.
func (c *check) queue(s session, n int, acquire func() *dlock.Lock) <-chan *dlock.Lock {
	won := background(acquire)
	c.queued(s, n)
	return won
}

func (c *check) granted(won <-chan *dlock.Lock, when string) *dlock.Lock {
	l, _ := await(c, won, "the lock is not granted %s", when)
	return l
}

func (c *check) notGranted(won <-chan *dlock.Lock, when string) {
	select {
	case l := <-won:
		c.fatalf("the lock was granted to %s %s, expected it to wait", l.Node(), when)
	default:
	}
}

func (c *check) queued(s session, n int) {
	c.eventually(func() (any, bool) {
		nodes := c.list(s, lockName)
		return nodes, len(nodes) == n
	}, "the lock's queue has %d nodes", n)
}

const unitsOfAll = 3

func (cl *client) units(weight int) func() *dlock.Lock {
	return func() *dlock.Lock {
		return cl.check.won(cl.Semaphore(lockName, unitsOfAll).Acquire(cl.check.ctx, weight))
	}
}
