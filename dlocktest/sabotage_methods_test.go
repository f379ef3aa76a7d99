package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

var methodSabotages = []sabotage{
	{"does not look at ctx", "a client library without contexts",
		of(func(s base) deaf { return deaf{s} })},
	{"marks no error", "returning the client library's errors as they are",
		of(func(s base) unmarked { return unmarked{s} })},
	{"marks what is gone as passing", "one mark for all errors",
		of(func(s base) marksGone { return marksGone{s} })},
	{"marks a bad name as passing", "one mark for all errors",
		of(func(s base) marksNames { return marksNames{s} })},
	{"answers after its end", "a connection pool that serves whoever asks",
		of(func(s base) answersAfterEnd { return answersAfterEnd{s} })},
	{"ends with the ctx of Connect", "deriving the session's own context from it",
		of(func(s base) *endsWithConnect { return &endsWithConnect{releasing: s} })},
	{"makes one call at a time", "a mutex around the connection: whoever waits for it does not look at ctx",
		of(func(s base) *oneAtATime { return &oneAtATime{releasing: s} })},
}

type marksNames struct{ *releasing }

func (s marksNames) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	if errors.Is(err, driver.ErrName) {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nodes, err
}

type endsWithConnect struct {
	*releasing
	ended atomic.Bool
}

func (s *endsWithConnect) connectedWith(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		s.ended.Store(true)
		_ = s.releasing.Close()
	})
}

// oneAtATime holds a mutex over each request.
type oneAtATime struct {
	*releasing
	mu sync.Mutex
}

func (s *oneAtATime) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releasing.Create(ctx, queue, prefix, data)
}

func (s *oneAtATime) List(ctx context.Context, queue string) ([]driver.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releasing.List(ctx, queue)
}

func (s *oneAtATime) Delete(ctx context.Context, queue string, p driver.Place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releasing.Delete(ctx, queue, p)
}

type deaf struct{ *releasing }

func (s deaf) List(ctx context.Context, queue string) ([]driver.Node, error) {
	return s.releasing.List(context.WithoutCancel(ctx), queue)
}

type unmarked struct{ *releasing }

func (s unmarked) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	if err != nil && !errors.Is(err, driver.ErrName) {
		return nil, errors.New("connection refused")
	}
	return nodes, err
}

type marksGone struct{ *releasing }

func (s marksGone) Delete(ctx context.Context, queue string, p driver.Place) error {
	err := s.releasing.Delete(ctx, queue, p)
	if errors.Is(err, driver.ErrGone) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

type answersAfterEnd struct{ *releasing }

func (s answersAfterEnd) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.releasing.List(ctx, queue)
	if errors.Is(err, driver.ErrSessionEnded) {
		return nil, nil
	}
	return nodes, err
}
