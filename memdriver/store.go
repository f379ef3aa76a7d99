package memdriver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store is a store in memory. It implements driver.Connector, and has methods
// to look at it ([Store.Stats]) and to play faults on it and on its sessions.
// All methods may be called from many goroutines.
type Store struct {
	// Locks are taken in the order shard, then record or session; and store,
	// then record. None is held while foreign code runs.

	timeout       time.Duration
	sequenceStart int64
	sequenceLimit int64

	shards [shardCount]shard
	// tokens is the last token given out. The next one is taken under the lock
	// of the queue's shard, so that they rise in the order of its nodes: rule 3.
	tokens atomic.Int64
	epochs atomic.Int64 // incarnations of queues so far

	reach breaker // between the store and everybody

	mu      sync.Mutex
	records map[*record]struct{} // of sessions that live
	opened  int64                // sessions so far
	served  requests             // of sessions that have ended
}

// requests counts requests by kind.
type requests [opCount]int64

// New returns a new, empty store.
func New(opts ...Option) *Store {
	st := &Store{
		timeout:       defaultSessionTimeout,
		sequenceLimit: defaultSequenceLimit,
		records:       make(map[*record]struct{}),
	}
	for i := range st.shards {
		st.shards[i].queues = make(map[string]*queue)
	}
	for _, opt := range opts {
		opt(st)
	}
	return st
}

// Connect begins a new session, with the session timeout of the store. While
// the store is [Store.Down] it returns at once an error that matches
// driver.ErrUnavailable, as where a connection is refused.
func (st *Store) Connect(ctx context.Context) (driver.Session, error) {
	return st.connect(ctx, st.timeout)
}

func (st *Store) connect(ctx context.Context, timeout time.Duration) (driver.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("mem: connect: %w", err)
	}
	if !st.reach.whole() {
		return nil, fmt.Errorf("mem: connect: %w: the store is down", driver.ErrUnavailable)
	}
	sent := driver.Now()
	return newSession(st, st.admit(timeout), timeout, sent), nil
}

// shard returns the shard that a queue of that name is kept in. The hash is FNV-1a.
func (st *Store) shard(queue string) *shard {
	h := uint32(2166136261)
	for i := range len(queue) {
		h = (h ^ uint32(queue[i])) * 16777619
	}
	return &st.shards[h%shardCount]
}

// open returns a queue of a shard, whose lock is held. It is made if need be.
func (st *Store) open(sh *shard, name string) *queue {
	q := sh.queues[name]
	if q == nil {
		q = &queue{
			name:    name,
			epoch:   st.epochs.Add(1),
			next:    st.sequenceStart,
			byName:  make(map[string]*node),
			byToken: make(map[int64]*node),
		}
		sh.queues[name] = q
	}
	return q
}

// Stats is what a store holds at the moment and what it was asked so far.
// While others use the store the figures need not belong to one instant.
type Stats struct {
	Sessions int
	Queues   int // also those that are empty and not yet forgotten
	Nodes    int // also unsequenced ones
	Watches  int // armed in the store

	// Requests counts the requests of living sessions that reached the store,
	// whether or not it could do what they asked for. Index it with an [Op].
	Requests [opCount]int64
}

// Stats returns the state of the store.
func (st *Store) Stats() Stats {
	var s Stats
	st.mu.Lock()
	s.Sessions = len(st.records)
	s.Requests = st.served
	for r := range st.records {
		r.mu.Lock()
		s.add(&r.served)
		r.mu.Unlock()
	}
	st.mu.Unlock()
	for i := range st.shards {
		sh := &st.shards[i]
		sh.lock()
		s.Queues += len(sh.queues)
		s.Nodes += sh.nodes
		s.Watches += sh.armed
		sh.unlock()
	}
	return s
}

func (s *Stats) add(served *requests) {
	for op, n := range served {
		s.Requests[op] += n
	}
}
