package demo

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// locker is a worker's client. Tests replace it with one whose locks do not
// exclude each other, which the demo must notice.
type locker interface {
	Ping(ctx context.Context) error
	Lock(ctx context.Context, mode dlock.Mode) (held, error)
	Close() error
}

type held interface {
	Token() int64
	Err() error
	Lost() <-chan struct{}
	Unlock() error
}

// opener opens a client for a worker with this host name. It does no I/O.
type opener func(host string, trace *recipes.Trace) (locker, error)

type client struct {
	*dlock.Client
	lock *dlock.RWMutex
}

var stores atomic.Int64

// open opens a worker's client of the real store. It is the opener outside
// tests.
func (s *settings) open(host string, trace *recipes.Trace) (locker, error) {
	if s.Driver == inMemory && (s.DSN == "" || strings.HasPrefix(s.DSN, "?")) {
		// Clients share an in-memory store by name.
		s.DSN = fmt.Sprintf("demo-%d%s", stores.Add(1), s.DSN)
	}
	c, err := dlock.Open(s.Driver, s.DSN, s.options(host, trace)...)
	if err != nil {
		return nil, err
	}
	return client{c, c.RWMutex(s.Lock)}, nil
}

func (s *settings) options(host string, trace *recipes.Trace) []dlock.Option {
	return []dlock.Option{dlock.WithHostname(host), dlock.WithTimeout(s.Timeout), dlock.WithTrace(trace)}
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
