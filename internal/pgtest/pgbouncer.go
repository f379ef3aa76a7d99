package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Pgbouncer starts PgBouncer in front of the server and returns its address.
// PgBouncer pools transactions, with at most the given number of connections to
// the server. It is killed when the test ends.
func (s *Server) Pgbouncer(t testing.TB, connections int) (addr string) {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	pgbouncer.Require(t, err)
	port, err := testenv.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "pgbouncer.ini")
	files := map[string]string{
		config: fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%d dbname=postgres\n"+
			"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nauth_type = plain\nauth_file = %s/users\n"+
			"unix_socket_dir =\npool_mode = transaction\ndefault_pool_size = %d\nmax_client_conn = 200\n", s.port, port, dir, connections),
		filepath.Join(dir, "users"): fmt.Sprintf("%q %q\n", superuser, password),
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.account.own(dir); err != nil {
		t.Fatal(err)
	}
	proc, err := testenv.NewProcess(dir, s.account.command(path, config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.Close() })
	addr = testenv.Loopback(port)
	err = proc.Start(testenv.Startup{
		Ready:     func() bool { return answers(addr) },
		PortTaken: func(log string) bool { return strings.Contains(log, "Address already in use") },
		Exiting:   func(log string) bool { return strings.Contains(log, "FATAL") },
	})
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func answers(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
