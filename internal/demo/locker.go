package demo

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dlock-go/dlock"
)

// locker is a worker's client. It is an interface so that tests can see a lock that does not lock be found out.
type locker interface {
	Ping(ctx context.Context) error
	Lock(ctx context.Context, mode dlock.Mode) (held, error)
	Close() error
}

// held is a lock that is held; *dlock.Lock says what the methods do.
type held interface {
	Token() int64
	Err() error
	Lost() <-chan struct{}
	Unlock() error
}

// opener returns the locker of the worker of that name. It does no I/O.
type opener func(host string, trace *dlock.Trace) (locker, error)

// client is the real locker.
type client struct {
	*dlock.Client
	lock *dlock.RWMutex
}

// open is the opener of real lockers. All of a run are clients of one store.
func (s *settings) open(host string, trace *dlock.Trace) (locker, error) {
	if s.driver == inMemory {
		s.nameStore()
	}
	c, err := dlock.Open(s.driver, s.dsn, dlock.WithHostname(host), dlock.WithTimeout(s.timeout), dlock.WithTrace(trace))
	if err != nil {
		return nil, err
	}
	return client{c, c.RWMutex(s.lock)}, nil
}

var stores atomic.Int64

// nameStore gives a name to the store in memory, unless it has one: without, each client would have a store to itself.
func (s *settings) nameStore() {
	if s.dsn == "" || strings.HasPrefix(s.dsn, "?") {
		s.dsn = fmt.Sprintf("demo-%d%s", stores.Add(1), s.dsn)
	}
}

func (c client) Lock(ctx context.Context, mode dlock.Mode) (held, error) {
	lock := c.lock.Lock
	if mode == dlock.Shared {
		lock = c.lock.RLock
	}
	l, err := lock(ctx)
	if err != nil {
		return nil, err // not a nil *dlock.Lock within an interface
	}
	return l, nil
}
