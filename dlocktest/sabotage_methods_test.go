package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var methodSabotages = []sabotage{
	{"ignores ctx", "a client library without contexts",
		of(func(s base) ignoresCtx { return ignoresCtx{s} })},
	{"returns errors that match none of package driver", "returning the client library's errors as they are",
		of(func(s base) unmarked { return unmarked{s} })},
	{"marks the error for a missing node as one that may pass", "one mark for all errors",
		of(func(s base) marksGone { return marksGone{s} })},
	{"marks the error for a bad name as one that may pass", "one mark for all errors",
		of(func(s base) marksNames { return marksNames{s} })},
	{"carries out calls after the end of the session", "a connection pool that serves any caller",
		of(func(s base) answersAfterEnd { return answersAfterEnd{s} })},
	{"supports Read in some calls only", "asking the server for its version in each call, in a cluster with several versions",
		of(func(s base) *fickle { return &fickle{base: s} })},
	{"ends with the ctx of Connect", "deriving the session's own context from it",
		of(func(s base) *endsWithConnect { return &endsWithConnect{base: s} })},
	{"gives a request a deadline and returns its error", "a time limit by context.WithTimeout",
		of(func(s base) ownDeadline { return ownDeadline{s} })},
	{"makes one call at a time", "a mutex around the connection: a call that waits for it ignores ctx",
		of(func(s base) *oneAtATime { return &oneAtATime{base: s} })},
}

type ownDeadline struct{ base }

func (s ownDeadline) List(ctx context.Context, queue string) ([]driver.Node, error) {
	limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	nodes, err := s.base.List(limited, queue)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && s.base.Err() == nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, limited.Err())
	}
	return nodes, err
}

type marksNames struct{ base }

func (s marksNames) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	if errors.Is(err, driver.ErrBadName) {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nodes, err
}

type endsWithConnect struct {
	base
	ended atomic.Bool
}

func (s *endsWithConnect) connectedWith(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		s.ended.Store(true)
		_ = s.base.Close()
	})
}

type oneAtATime struct {
	base
	mu sync.Mutex
}

func (s *oneAtATime) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base.Create(ctx, queue, n)
}

func (s *oneAtATime) List(ctx context.Context, queue string) ([]driver.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base.List(ctx, queue)
}

func (s *oneAtATime) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.base.Delete(ctx, queue, p, why)
}

type ignoresCtx struct{ base }

func (s ignoresCtx) List(ctx context.Context, queue string) ([]driver.Node, error) {
	return s.base.List(context.WithoutCancel(ctx), queue)
}

type unmarked struct{ base }

func (s unmarked) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	if err != nil && !errors.Is(err, driver.ErrBadName) {
		return nil, errors.New("connection refused")
	}
	return nodes, err
}

type marksGone struct{ base }

func (s marksGone) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	err := s.base.Delete(ctx, queue, p, why)
	if errors.Is(err, driver.ErrGone) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

type answersAfterEnd struct{ base }

func (s answersAfterEnd) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	if errors.Is(err, driver.ErrSessionEnded) {
		return nil, nil
	}
	return nodes, err
}

type fickle struct {
	base
	asked atomic.Int32
}

func (s *fickle) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	if s.asked.Add(1)%3 == 0 {
		return driver.NodeInfo{}, errors.ErrUnsupported
	}
	return s.base.Read(ctx, queue, name)
}
