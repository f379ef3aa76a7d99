package zktest

import (
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// RequireSlowDisk ends the test if [WithSlowDisk] does not work on this
// machine. On Linux, where only a compiler can be missing, the test fails if
// DLOCK_TEST_ZOOKEEPER=require. Otherwise it is skipped.
func RequireSlowDisk(t testing.TB) {
	t.Helper()
	err := testenv.CheckSlowDisk()
	if err != nil && runtime.GOOS != "linux" {
		t.Skip(err)
	}
	compiler.Require(t, err)
}

// WithSlowDisk enables [Server.SetDiskDelay]. Call [RequireSlowDisk] first,
// because otherwise the server may fail to start.
func WithSlowDisk() Option {
	return func(s *settings) { s.slowDisk = true }
}

// SetDiskDelay makes every sync of the server to disk take d longer. It
// requires [WithSlowDisk]. A sync in progress is not affected.
func (s *Server) SetDiskDelay(d time.Duration) {
	s.t.Helper()
	s.Must(testenv.SetDiskDelay(s.proc.Dir(), d))
}
