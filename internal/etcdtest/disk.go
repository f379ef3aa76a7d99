package etcdtest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

//go:embed testdata/hangdisk.c
var hangDiskSource []byte

// hangDisk compiles the program that makes a server's disk hang, and tries it.
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

// RequireHangingDisk skips the test if [WithHangingDisk] does not work on this
// machine. It needs Linux 5.5, a C compiler, and permission to use seccomp with
// notifications. On Linux the test fails instead if etcd is required.
func RequireHangingDisk(t testing.TB) {
	t.Helper()
	_, err := hangDisk()
	etcd.RequireCompiled(t, "an etcd whose disk can hang", err)
}

// WithHangingDisk enables [Server.HangDisk]. Call [RequireHangingDisk] first,
// because the server may fail to start where hanging disks don't work.
func WithHangingDisk() Option { return func(s *settings) { s.hangingDisk = true } }

func hangDiskCommand(s *testenv.Server) []string {
	program, err := hangDisk()
	s.Must(err)
	path := s.Write("hangdisk", string(program))
	s.Must(os.Chmod(path, 0o700))
	return []string{path, hangFile(s.Dir())}
}

func hangFile(dir string) string { return filepath.Join(dir, "hang") }

// HangDisk blocks the server's writes to its write-ahead log until
// [Server.MendDisk] is called. A follower with a blocked log applies no
// changes, but still answers keep-alives and progress requests.
func (s *Server) HangDisk() {
	s.T.Helper()
	s.Must(os.WriteFile(hangFile(s.Dir()), nil, 0o600))
}

// MendDisk ends [Server.HangDisk].
func (s *Server) MendDisk() {
	s.T.Helper()
	s.Must(os.Remove(hangFile(s.Dir())))
}
