package shards_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/shards"
)

// sessionTimeout is the default of memdriver.
const sessionTimeout = 10 * time.Second

// fleet fails the test as soon as two of its workers work on one shard.
type fleet struct {
	*testing.T
	store *memdriver.Store
	n     int

	mu     sync.Mutex
	at     []stint // the latest call of work for each shard
	tokens []int64 // the latest token of each shard's lock
}

// stint is one call of the function work.
type stint struct {
	worker string // empty if nobody is working
	lock   *dlock.Lock
}

func inFleet(t *testing.T, n int, f func(f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fl := &fleet{T: t, store: memdriver.New(), n: n, at: make([]stint, n), tokens: make([]int64, n)}
		t.Cleanup(func() {
			synctest.Wait()
			s := fl.store.Stats()
			require.Zero(t, s.Nodes, "nodes left in the store")
			require.Zero(t, s.Sessions, "sessions left in the store")
		})
		f(fl)
	})
}

type worker struct {
	*dlock.Client
	name   string
	slow   time.Duration // how long work outlasts its context
	leave  context.CancelFunc
	result chan error
	mu     sync.Mutex
	last   driver.Session
	dead   bool // whether it cannot connect
}

type connectorOf struct {
	*worker
	store driver.Connector
}

func (c connectorOf) Connect(ctx context.Context) (driver.Session, error) {
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	if dead {
		return nil, driver.ErrUnavailable
	}
	s, err := c.store.Connect(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last = s
	}
	return s, err
}

func (w *worker) session() driver.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return faults.Unwrap(w.last)
}

// kill cuts a worker off, as if its process had died.
func (f *fleet) kill(w *worker) (revive func()) {
	heal := f.store.Faults().CutOff(w.session())
	w.setDead(true)
	return func() {
		w.setDead(false)
		heal()
	}
}

func (w *worker) setDead(dead bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = dead
}

func (f *fleet) client(name string, opts ...dlock.Option) *worker {
	f.Helper()
	w := &worker{name: name, result: make(chan error, 1)}
	w.Client = dlock.NewClient(connectorOf{w, f.store}, append(opts, dlock.WithHostname(name))...)
	f.Cleanup(func() { _ = w.Close() })
	require.NoError(f, w.Ping(f.Context()))
	return w
}

func (f *fleet) join(name string, opts ...dlock.Option) *worker {
	f.Helper()
	w := f.client(name, opts...)
	f.run(w, f.workOf(w))
	return w
}

func (f *fleet) run(w *worker, work shards.Work) {
	ctx, leave := context.WithCancel(context.Background())
	w.leave = leave
	go func() { w.result <- shards.Run(ctx, w.Client, "jobs", f.n, work) }()
	synctest.Wait()
}

func (f *fleet) workOf(w *worker) shards.Work {
	return func(ctx context.Context, lock *dlock.Lock, shard int) error {
		f.begin(w.name, shard, lock)
		<-ctx.Done()
		if w.slow > 0 && lock.Err() == nil {
			time.Sleep(w.slow) // but after a loss, work ends at once
		}
		f.end(shard, lock)
		return ctx.Err()
	}
}

// begin fails the test if the shard has a worker that holds its lock.
func (f *fleet) begin(worker string, shard int, lock *dlock.Lock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.at[shard]; at.worker == worker || at.worker != "" && at.lock.Err() == nil {
		f.Errorf("shard %d has two workers, %s and %s", shard, at.worker, worker)
	}
	if lock.Token() < f.tokens[shard] {
		f.Errorf("shard %d: token %d comes after %d", shard, lock.Token(), f.tokens[shard])
	}
	f.at[shard], f.tokens[shard] = stint{worker, lock}, lock.Token()
}

func (f *fleet) end(shard int, lock *dlock.Lock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at[shard].lock == lock {
		f.at[shard] = stint{}
	}
}

// shares counts each worker's shards. The key "" is for those without a worker.
func (f *fleet) shares() map[string]int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	shares := make(map[string]int)
	for _, at := range f.at {
		shares[at.worker]++
	}
	return shares
}

func (f *fleet) divided(workers int) {
	f.Helper()
	shares := f.shares()
	require.Zero(f, shares[""], "shards without a worker: %v", shares)
	limit := (f.n + workers - 1) / workers
	for name, n := range shares {
		require.LessOrEqual(f, n, limit, "%s: %v", name, shares)
	}
}

// moved counts the shards that have another worker after the call of change.
func (f *fleet) moved(change func()) (moved int) {
	synctest.Wait()
	f.mu.Lock()
	before := slices.Clone(f.at)
	f.mu.Unlock()
	change()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range before {
		if before[i].worker != f.at[i].worker {
			moved++
		}
	}
	return moved
}

// spent counts the requests since the given snapshot, without heartbeats.
func (f *fleet) spent(before memdriver.Stats) map[faults.Op]int64 {
	synctest.Wait()
	spent := make(map[faults.Op]int64)
	for op, n := range f.store.Stats().Requests {
		if n -= before.Requests[op]; n != 0 && op != faults.OpHeartbeat {
			spent[op] = n
		}
	}
	return spent
}

func (f *fleet) result(w *worker) error {
	f.Helper()
	synctest.Wait()
	select {
	case err := <-w.result:
		return err
	default:
		require.FailNow(f, fmt.Sprintf("Run of %s has not returned", w.name))
		return nil
	}
}

func (f *fleet) left(workers ...*worker) {
	f.Helper()
	for _, w := range workers {
		w.leave()
	}
	time.Sleep(10 * time.Second)
	for _, w := range workers {
		require.EqualError(f, f.result(w), "dlock: jobs: context canceled")
	}
}
