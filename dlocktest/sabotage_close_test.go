package dlocktest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var closeSabotages = []sabotage{
	{"closes in the background", "a Close that must not block",
		of(func(s base) lazyClose { return lazyClose{s} })},
	{"deletes before it is done", "cleaning up first and closing then",
		func(s base, st *memdriver.Store) driver.Session { return &deletesFirst{releasing: s, store: st} }},
	{"closes twice with an error", "a client library whose Close may be called once",
		of(func(s base) *closesOnce { return &closesOnce{releasing: s} })},
	{"leaves its nodes to the session timeout", "etcd, Redis: closing the connection and not revoking the lease",
		of(func(s base) leavesNodes { return leavesNodes{s} })},
	{"says nil although it could not reach the store", "an error of cleaning up that is thrown away",
		of(func(s base) *alwaysNil { return &alwaysNil{releasing: s} })},
	{"ends no session in the store whose lease has run out", "a session that is over needs no goodbye",
		of(func(s base) forgetsLapsed { return forgetsLapsed{s} })},
	{"remembers the error of its first Close", "sync.Once around all of Close",
		of(func(s base) *closesOnceOnly { return &closesOnceOnly{releasing: s} })},
	{"waits for its store without a limit", "context.Background in Close",
		of(func(s base) *waitsInClose { return &waitsInClose{releasing: s} })},
	{"sweeps up what has its host's name", "removing nodes by prefix",
		func(s base, st *memdriver.Store) driver.Session { return &sweepsUp{releasing: s, store: st} }},
}

type leavesNodes struct{ *releasing }

func (s leavesNodes) Close() error {
	if o, known := owners.Load(s); known && s.Err() == nil {
		o.(owner).store.Faults().CutOff(s.full)
	}
	go func() { _ = s.releasing.Close() }()
	for s.Err() == nil {
		runtime.Gosched()
	}
	return nil
}

// alwaysNil gives up at once when it is cut off.
type alwaysNil struct {
	*releasing
	away atomic.Bool
}

func (s *alwaysNil) cut(now bool) { s.away.Store(now) }

func (s *alwaysNil) Close() error {
	if !s.away.Load() {
		return s.releasing.Close()
	}
	return leavesNodes{s.releasing}.Close()
}

type waitsInClose struct {
	*releasing
	mu    sync.Mutex
	whole chan struct{}
}

func (s *waitsInClose) cut(now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now {
		s.whole = make(chan struct{})
	} else {
		close(s.whole)
	}
}

func (s *waitsInClose) Close() error {
	s.mu.Lock()
	whole := s.whole
	s.mu.Unlock()
	if whole != nil {
		<-whole
	}
	return s.releasing.Close()
}

type sweepsUp struct {
	*releasing
	store  *memdriver.Store
	places places
	closed sync.Once
}

func (s *sweepsUp) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.places.add(queue, p)
	return p, err
}

func (s *sweepsUp) Close() error {
	s.closed.Do(s.sweep)
	return s.releasing.Close()
}

func (s *sweepsUp) sweep() {
	s.places.each(func(queue string, p driver.Place) {
		nodes, _ := s.List(context.Background(), queue)
		prefix, _, _ := driver.ParseName(p.Name)
		for _, n := range withPrefix(nodes, prefix) {
			s.store.Faults().RemoveNode(queue, n.Name)
		}
	})
}

type lazyClose struct{ *releasing }

func (s lazyClose) Close() error {
	go func() {
		time.Sleep(20 * time.Millisecond)
		_ = s.releasing.Close()
	}()
	return nil
}

type deletesFirst struct {
	*releasing
	store *memdriver.Store
	mu    sync.Mutex
	names []string
}

func (s *deletesFirst) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, p.Name)
	return p, err
}

func (s *deletesFirst) Close() error {
	s.mu.Lock()
	for _, name := range s.names {
		s.store.Faults().RemoveNode("q", name)
	}
	s.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	return s.releasing.Close()
}

type closesOnce struct {
	*releasing
	closed atomic.Bool
}

func (s *closesOnce) Close() error {
	if s.closed.Swap(true) {
		return errors.New("closed already")
	}
	return s.releasing.Close()
}

type forgetsLapsed struct{ *releasing }

func (s forgetsLapsed) Close() error {
	if err := s.Err(); err != nil {
		return nil
	}
	return s.releasing.Close()
}

type closesOnceOnly struct {
	*releasing
	once sync.Once
	err  error
}

func (s *closesOnceOnly) Close() error {
	s.once.Do(func() { s.err = s.releasing.Close() })
	return s.err
}
