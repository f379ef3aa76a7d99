package etcdtest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

//go:embed testdata/hangdisk.c
var hangDiskSource []byte

// hangDisk compiles hangDiskSource and tries the program, once for each test binary.
var hangDisk = sync.OnceValues(func() ([]byte, error) {
	program, err := testenv.Compile("hangdisk", hangDiskSource)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "etcdtest-hangdisk-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "hangdisk")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		return nil, err
	}
	if output, err := exec.Command(path, hangFile(dir), "sync", path).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("etcdtest: hangdisk: %w: %s", err, output)
	}
	return program, nil
})

var hangingDisk = testenv.Dependency{
	Name:     "an etcd whose disk can hang",
	Variable: etcd.Variable,
	Install:  "apt-get install -y gcc libc6-dev, and allow seccomp with notifications (Linux 5.5)",
}

// RequireHangingDisk ends the test if [WithHangingDisk] cannot be used on this
// machine. It needs Linux, a C compiler, and the right to use seccomp. On Linux, the
// test fails if etcd is required, see [Require]. Otherwise the test is skipped.
func RequireHangingDisk(t testing.TB) {
	t.Helper()
	_, err := hangDisk()
	if err != nil && runtime.GOOS != "linux" {
		t.Skip(err)
	}
	hangingDisk.Require(t, err)
}

// WithHangingDisk makes [Server.HangDisk] possible. The server does not start where
// [RequireHangingDisk] would end the test.
func WithHangingDisk() Option { return func(s *settings) { s.hangingDisk = true } }

// hangDiskCommand returns the beginning of the command line of a server in dir.
func hangDiskCommand(dir string) ([]string, error) {
	program, err := hangDisk()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "hangdisk")
	return []string{path, hangFile(dir)}, os.WriteFile(path, program, 0o700)
}

func hangFile(dir string) string { return filepath.Join(dir, "hang") }

// HangDisk makes the server wait for the disk of its write-ahead log until
// [Server.MendDisk]. A follower then applies no changes. It goes on answering
// keep-alives of leases, and requests for the progress of watches.
func (s *Server) HangDisk() {
	s.t.Helper()
	s.Must(os.WriteFile(hangFile(s.proc.Dir()), nil, 0o600))
}

// MendDisk ends [Server.HangDisk].
func (s *Server) MendDisk() {
	s.t.Helper()
	s.Must(os.Remove(hangFile(s.proc.Dir())))
}
