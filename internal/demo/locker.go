package demo

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dlock-go/dlock"
)

// locker is a worker's client. Tests have lockers that do not exclude, which the
// verdict must report.
type locker interface {
	Ping(ctx context.Context) error
	Lock(ctx context.Context, mode dlock.Mode) (held, error)
	Close() error
}

// held has the methods of [dlock.Lock] that the demo uses.
type held interface {
	Token() int64
	Err() error
	Lost() <-chan struct{}
	Unlock() error
}

// opener returns a locker for the worker with that host name. It does no I/O.
type opener func(host string, trace *dlock.Trace) (locker, error)

type client struct {
	*dlock.Client
	lock *dlock.RWMutex
}

var stores atomic.Int64

// open is the opener for the real lock.
func (s *settings) open(host string, trace *dlock.Trace) (locker, error) {
	if s.Driver == inMemory && (s.DSN == "" || strings.HasPrefix(s.DSN, "?")) {
		// Without a name each client would have a store of its own.
		s.DSN = fmt.Sprintf("demo-%d%s", stores.Add(1), s.DSN)
	}
	c, err := dlock.Open(s.Driver, s.DSN, dlock.WithHostname(host), dlock.WithTimeout(s.Timeout), dlock.WithTrace(trace))
	if err != nil {
		return nil, err
	}
	return client{c, c.RWMutex(s.Lock)}, nil
}

func (c client) Lock(ctx context.Context, mode dlock.Mode) (held, error) {
	lock := c.lock.Lock
	if mode == dlock.Shared {
		lock = c.lock.RLock
	}
	l, err := lock(ctx)
	if err != nil {
		return nil, err // not l, which would be a non-nil held
	}
	return l, nil
}
