package zktest

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// RequireClock skips or fails the test, as [Require] does, if this machine
// cannot change a server's clock.
func RequireClock(t testing.TB) {
	t.Helper()
	Require(t)
	testenv.RequireClock(t, zooKeeper)
}

// WithClock enables [Server.SetClock]. Call [RequireClock] first.
func WithClock() Option {
	return func(s *settings) { s.clock = true }
}

// SetClock sets the server's wall clock to the machine's clock plus offset. It
// requires [WithClock].
func (s *Server) SetClock(offset time.Duration) {
	s.t.Helper()
	s.Must(testenv.SetClock(s.proc.Dir(), offset))
}
