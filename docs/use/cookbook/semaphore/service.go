package main

import (
	"context"
	"sync"
	"time"
)

// service stands for a partner's service, which bans too many calls at a time.
type service struct {
	mu           sync.Mutex
	now, highest int
}

func (s *service) call(ctx context.Context, n int) error {
	s.add(n)
	defer s.add(-n)
	select {
	case <-time.After(time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *service) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.highest = max(s.highest, s.now)
}

func (s *service) most() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.highest
}
