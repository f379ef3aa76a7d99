package testenv

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Servers starts the servers of a store. P is a server process, which may outlive a
// test. The zero values of the unexported fields are ready for use.
type Servers[P any] struct {
	Name    string           // of the package
	Require func(testing.TB) // skips or fails the test if the server is not installed
	Launch  func(P) error    // starts the process, and waits until it is ready
	Close   func(P) error    // ends it, and removes its directory

	mu      sync.Mutex
	started bool // whether shared is a server; guarded by mu
	shared  P
}

// Start starts a server that is closed when the test ends. The function prepare
// chooses its ports. It is called again if another program takes one of them.
func (s *Servers[P]) Start(t testing.TB, prepare func() (P, error)) P {
	t.Helper()
	s.Require(t)
	p, err := s.start(prepare)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(p) }) // a failure only leaves a directory behind
	return p
}

func (s *Servers[P]) start(prepare func() (P, error)) (p P, err error) {
	for {
		if p, err = prepare(); err == nil {
			if err = s.Launch(p); err == nil {
				return p, nil
			}
			_ = s.Close(p)
		}
		if !errors.Is(err, ErrPortTaken) {
			return p, err
		}
	}
}

// Shared returns a server that all tests of a binary share, which the first call
// starts. If that fails, the test fails, and the next call tries again.
func (s *Servers[P]) Shared(t testing.TB, prepare func() (P, error)) P {
	t.Helper()
	s.Require(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		server, err := s.start(prepare)
		if err != nil {
			t.Fatal(err)
		}
		s.shared, s.started = server, true
	}
	return s.shared
}

// Main runs the tests, then stops the shared server if there is one, and returns
// the exit code of the test binary. If the server does not stop, Main prints the
// error, and the code is not 0. Without Main, the server is stopped when the
// binary exits, but nobody waits for it.
func (s *Servers[P]) Main(m *testing.M) int {
	code := m.Run()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return code
	}
	if err := s.Close(s.shared); err != nil {
		fmt.Fprintf(os.Stderr, "%s: shared server: %v\n", s.Name, err)
		return max(code, 1)
	}
	return code
}

// Each calls f for all servers at the same time, and returns all errors.
func Each[S any](servers []S, f func(S) error) (err error) {
	errs := make(chan error)
	for _, s := range servers {
		go func() { errs <- f(s) }()
	}
	for range servers {
		err = errors.Join(err, <-errs)
	}
	return err
}
