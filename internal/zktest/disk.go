package zktest

import (
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// RequireSlowDisk ends the test if [WithSlowDisk] cannot be used on this
// machine: see [testenv.CheckSlowDisk]. With DLOCK_TEST_ZOOKEEPER=require the
// test fails on Linux, where only a compiler can be missing. Otherwise it is
// skipped.
func RequireSlowDisk(t testing.TB) {
	t.Helper()
	err := testenv.CheckSlowDisk()
	if err != nil && runtime.GOOS != "linux" {
		t.Skip(err)
	}
	compiler.Require(t, err)
}

// WithSlowDisk enables [Server.SetDiskDelay]. The server does not start if
// [testenv.CheckSlowDisk] returns an error.
func WithSlowDisk() Option {
	return func(s *settings) { s.slowDisk = true }
}

// SetDiskDelay lengthens the server's later waits for its disk (fsync,
// fdatasync) by d. A d of 0 ends the delay. A wait that has begun keeps its
// delay. The server must have been started with [WithSlowDisk].
func (s *Server) SetDiskDelay(d time.Duration) {
	s.t.Helper()
	s.Must(testenv.SetDiskDelay(s.proc.Dir(), d))
}
