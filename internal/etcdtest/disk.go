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
)

//go:embed testdata/hangdisk.c
var hangDiskSource []byte

// hangDisk compiles hangDiskSource, once for each test binary, and runs the program.
var hangDisk = sync.OnceValues(func() (program []byte, err error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("etcdtest: a disk that hangs needs Linux")
	}
	dir, err := os.MkdirTemp("", "etcdtest-hangdisk-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	source, binary := filepath.Join(dir, "hangdisk.c"), filepath.Join(dir, "hangdisk")
	if err := os.WriteFile(source, hangDiskSource, 0o600); err != nil {
		return nil, err
	}
	for _, command := range [][]string{{"cc", "-O1", "-o", binary, source}, {binary, filepath.Join(dir, "hang"), "sync", source}} {
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("etcdtest: %s: %w: %s", command[0], err, output)
		}
	}
	return os.ReadFile(binary)
})

// RequireHangingDisk skips the test if [WithHangingDisk] cannot be used on this
// machine. It needs Linux, a C compiler, and the right to use seccomp.
func RequireHangingDisk(t testing.TB) {
	t.Helper()
	if _, err := hangDisk(); err != nil {
		t.Skip(err)
	}
}

// WithHangingDisk makes [Server.HangDisk] possible. The server does not start if
// [RequireHangingDisk] skips the test.
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
	s.must(os.WriteFile(hangFile(s.proc.Dir()), nil, 0o600))
}

// MendDisk ends [Server.HangDisk].
func (s *Server) MendDisk() {
	s.t.Helper()
	s.must(os.Remove(hangFile(s.proc.Dir())))
}
