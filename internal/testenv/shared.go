package testenv

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// Shared holds the one server that all tests of a binary share. The zero value
// holds no server yet. S is the type of the package that starts the server.
type Shared[S any] struct {
	mu      sync.Mutex
	started bool
	server  S
}

// Get returns the server. The first call of Get calls start, which starts the
// server. If start fails, the test fails, and the next call of Get calls start
// again.
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

// Main runs the tests. If a test has started the server, Main calls stop after
// the tests, which stops the server. The result is the exit code of the test
// binary. If stop fails, Main prints the error with the name of the package,
// and the exit code is not 0.
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
