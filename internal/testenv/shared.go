package testenv

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared is a server of type S that all tests of a binary share. The zero value
// has no server yet.
type Shared[S any] struct {
	mu      sync.Mutex
	started bool
	server  S
}

// Get returns the server, which the first call starts. If start fails, the test
// fails and the next call tries again.
func (s *Shared[S]) Get(t testing.TB, start func() (S, error)) S {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		server, err := start()
		if err != nil {
			t.Fatal(err)
		}
		s.server, s.started = server, true
	}
	return s.server
}

// Main runs the tests, then stops the server if it was started, and returns the
// exit code of the test binary. If stop fails, Main prints the error along with
// name, and the code is not 0.
func (s *Shared[S]) Main(m *testing.M, name string, stop func(S) error) int {
	code := m.Run()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		return code
	}
	if err := stop(s.server); err != nil {
		fmt.Fprintf(os.Stderr, "%s: shared server: %v\n", name, err)
		return max(code, 1)
	}
	return code
}
