package dlocktest

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

const lockName = "stock/42"

type client struct {
	*dlock.Client
	check *check

	mu       sync.Mutex
	sessions []session
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

func (t recordingConnector) Connect(ctx context.Context) (session, error) {
	s, err := t.Connector.Connect(ctx)
	if err == nil {
		t.client.check.closeLater(s)
		t.client.mu.Lock()
		defer t.client.mu.Unlock()
		t.client.sessions = append(t.client.sessions, s)
	}
	return s, err
}

func (cl *client) session() session {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.sessions[len(cl.sessions)-1]
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

func (c *check) unlock(l *dlock.Lock) {
	if err := l.Unlock(); err != nil {
		c.fatalf("Unlock of a lock that was held returned %q, expected success", err)
	}
}

// giveUp makes n calls of Lock or RLock with contexts that end too early, half
// of them during Create. usual is the duration of Create.
func (cl *client) giveUp(n int, usual time.Duration, granted func(*dlock.Lock)) {
	m := cl.RWMutex(lockName)
	for i := range n {
		cl.check.exitIfAbandoned()
		after := usual
		if i%2 == 0 {
			after = 5 * time.Millisecond
		}
		ctx, cancel := soonEnded(cl.check.ctx, i/2, after)
		lock := m.Lock
		if rand.N(2) == 0 {
			lock = m.RLock
		}
		if l, err := lock(ctx); err == nil {
			granted(l)
		}
		cancel()
	}
}

func (c *check) idleLockIsFree(s session) {
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
