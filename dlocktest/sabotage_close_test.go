package dlocktest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

var closeSabotages = []sabotage{
	{"deletes its nodes in Close before Done is closed", "cleaning up first and closing then",
		func(s base, st *memdriver.Store) driver.Session { return &deletesFirst{placing{base: s}, st} }},
	{"removes in Close its session before its nodes", "a store that changes one key at a time", newPurgedFirst},
	{"returns an error from a second Close", "a client library whose Close may be called once",
		of(func(s base) *closesOnce { return &closesOnce{base: s} })},
	{"leaves its nodes to the session timeout", "etcd, Redis: closing the connection and not revoking the lease",
		of(func(s base) leavesNodes { return leavesNodes{s} })},
	{"returns nil from Close although it could not reach the store", "an error of the clean-up that is ignored",
		of(func(s base) *alwaysNil { return &alwaysNil{base: s} })},
	{"leaves its session in the store if the lease has run out", "a Close that returns early if the session has ended",
		of(func(s base) forgetsLapsed { return forgetsLapsed{s} })},
	{"remembers the error of its first Close", "sync.Once around all of Close",
		of(func(s base) *closesOnceOnly { return &closesOnceOnly{base: s} })},
	{"waits for its store without a limit", "context.Background in Close",
		of(func(s base) *waitsInClose { return &waitsInClose{base: s} })},
	{"sends a create after Close", "a client library without contexts: the request goes on in a goroutine of its own, for which Close does not wait",
		func(s base, st *memdriver.Store) driver.Session { return &createsAfterClose{base: s, store: st} }},
	{"does not refuse a create that arrives after Close", "Redis, SQL: no look at the session in the request that makes the node",
		func(s base, st *memdriver.Store) driver.Session { return &takesLateCreates{base: s, store: st} }},
	{"deletes at Close all nodes with its host's name", "removing nodes by prefix",
		func(s base, st *memdriver.Store) driver.Session { return sweepsUp{s, st} }},
}

type leavesNodes struct{ base }

func (s leavesNodes) Close() error {
	if o, known := owners.Load(s); known && s.Err() == nil {
		o.(owner).CutOff(s.base)
	}
	go func() { _ = s.base.Close() }()
	for s.Err() == nil {
		runtime.Gosched()
	}
	return nil
}

// alwaysNil is a session whose Close, while cut off, returns nil immediately
// although the store has not closed it.
type alwaysNil struct {
	base
	away atomic.Bool
}

func (s *alwaysNil) cut(now bool) { s.away.Store(now) }

func (s *alwaysNil) Close() error {
	if !s.away.Load() {
		return s.base.Close()
	}
	return leavesNodes{s.base}.Close()
}

type waitsInClose struct {
	base
	cutState
}

func (s *waitsInClose) Close() error {
	<-s.healed()
	return s.base.Close()
}

type sweepsUp struct {
	base
	store *memdriver.Store
}

func (s sweepsUp) Close() error {
	if s.Err() == nil {
		nodes, _ := s.List(context.Background(), "q")
		for _, n := range withPrefix(nodes, writer) {
			s.store.Faults().RemoveNode("q", n.Name)
		}
	}
	return s.base.Close()
}

type deletesFirst struct {
	placing
	store *memdriver.Store
}

func (s *deletesFirst) Close() error {
	s.places.each(func(queue string, p driver.Place) { s.store.Faults().RemoveNode(queue, p.Name) })
	time.Sleep(5 * time.Millisecond)
	return s.base.Close()
}

type closesOnce struct {
	base
	closed atomic.Bool
}

func (s *closesOnce) Close() error {
	if s.closed.Swap(true) {
		return errors.New("closed already")
	}
	return s.base.Close()
}

type forgetsLapsed struct{ base }

func (s forgetsLapsed) Close() error {
	if err := s.Err(); err != nil {
		return nil
	}
	return s.base.Close()
}

type closesOnceOnly struct {
	base
	once sync.Once
	err  error
}

func (s *closesOnceOnly) Close() error {
	s.once.Do(func() { s.err = s.base.Close() })
	return s.err
}

var strayNode atomic.Int64

// putStray adds a node that belongs to no session, as if a Create had reached
// the store after its session ended.
func putStray(st *memdriver.Store, queue, prefix string) (name string) {
	name = driver.FormatName(prefix, 1e9+strayNode.Add(1))
	_ = st.Faults().PutNode(queue, name, nil)
	return name
}

// createsAfterClose is a session that keeps retrying Creates whose ctx has
// ended, even after Close.
type createsAfterClose struct {
	base
	store   *memdriver.Store
	mu      sync.Mutex
	givenUp []func()
}

func (s *createsAfterClose) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err != nil && ctx.Err() != nil && s.Err() == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.givenUp = append(s.givenUp, func() { putStray(s.store, queue, n.Prefix) })
	}
	return j, err
}

func (s *createsAfterClose) Close() error {
	err := s.base.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, create := range s.givenUp {
		time.AfterFunc(time.Millisecond, create)
	}
	s.givenUp = nil
	return err
}

// takesLateCreates is a session whose delayed Create is still carried out after
// Close. Its node stays in the queue, because it belongs to no session that
// could end.
type takesLateCreates struct {
	base
	store *memdriver.Store
	late  lateRequests
}

func (s *takesLateCreates) holdRequest(faults.Op) (arrive func()) { return s.late.hold() }

func (s *takesLateCreates) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	arrives := func() {
		if s.Err() != nil {
			putStray(s.store, queue, n.Prefix)
		}
	}
	if s.late.sent(arrives) {
		return driver.Joined{}, errReset
	}
	return s.base.Create(ctx, queue, n)
}
