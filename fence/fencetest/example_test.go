package fencetest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/fence/fencetest"
)

// shelf is a resource of an application that compares tokens itself.
type shelf struct {
	mu    sync.Mutex
	text  string
	token int64
}

func (s *shelf) set(token int64, text string, beforeStore func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errors.New("stale token")
	}
	beforeStore()
	s.text, s.token = text, token
	return nil
}

func (s *shelf) get(token int64) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return "", errors.New("stale token")
	}
	return s.text, nil
}

// resource implements [fencetest.Resource] for a shelf.
type resource struct{ *shelf }

func (r resource) Write(_ context.Context, token int64, value string, pause func()) error {
	return r.set(token, value, pause)
}

func (r resource) Read(_ context.Context, token int64) (string, error) { return r.get(token) }

func TestShelfRefusesLateWrites(t *testing.T) {
	fencetest.Run(t, func(*testing.T) fencetest.Resource { return resource{new(shelf)} })
}

// A slow resource needs a longer Wait.
func ExampleOptions_Run() {
	testShelf := func(t *testing.T) {
		fencetest.Options{Wait: 5 * time.Second}.Run(t, func(*testing.T) fencetest.Resource { return resource{new(shelf)} })
	}
	_ = testShelf
}
