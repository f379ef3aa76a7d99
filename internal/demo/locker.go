package demo

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dlock-go/dlock"
)

// locker is a worker's client. It is an interface so that a test can use a lock
// that does not exclude, and see that the verdict reports it.
type locker interface {
	Ping(ctx context.Context) error
	Lock(ctx context.Context, mode dlock.Mode) (held, error)
	Close() error
}

// held is a lock that is held; see *dlock.Lock for the methods.
type held interface {
	Token() int64
	Err() error
	Lost() <-chan struct{}
	Unlock() error
}

// opener is a function that returns a locker for the worker with that host
// name. It does no I/O.
type opener func(host string, trace *dlock.Trace) (locker, error)

// client is the locker of a real lock.
type client struct {
	*dlock.Client
	lock *dlock.RWMutex
}

// open is the opener for the real lock. All lockers that it returns in a run
// are clients of one store.
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

// nameStore gives a name to the store in memory, unless it has one. Without a
// name each client would have a store of its own.
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
		return nil, err // not l: a nil *dlock.Lock would become a held that is not nil
	}
	return l, nil
}
