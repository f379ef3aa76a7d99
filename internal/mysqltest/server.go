package mysqltest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is one MariaDB server for a test. It listens on a loopback port, and asks
// for a password.
type Server struct {
	*process
	testenv.Controls
	t testing.TB
}

// Start starts a server for the test and returns when the server answers. When the test
// ends, the server is killed and its directory removed.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	Require(t)
	p, err := startProcess(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.proc.Close() })
	return newServer(t, p)
}

func newServer(t testing.TB, p *process) *Server {
	return &Server{process: p, Controls: testenv.NewControls(t, p.proc, p.launch), t: t}
}

// startProcess starts a server. If another program has taken the server's port,
// startProcess tries again with another port.
func startProcess(opts []Option) (*process, error) {
	return testenv.RetryNewPorts(func() (*process, error) {
		p, err := newProcess(opts)
		if err != nil {
			return nil, err
		}
		if err := p.launch(); err != nil {
			p.proc.Close()
			return nil, err
		}
		return p, nil
	})
}

var shared testenv.Shared[*process]

// Shared returns the one server that all tests of a binary share. The first call starts
// it. Each test uses a database of its own, see [Server.Database]. No test stops this
// server.
//
// The server ends with the test binary. If TestMain calls [Main], the binary also waits
// until the server has ended.
func Shared(t testing.TB) *Server {
	t.Helper()
	Require(t)
	p := shared.Get(t, func() (*process, error) { return startProcess(nil) })
	return newServer(t, p)
}

// Main runs the tests and stops the shared server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(mysqltest.Main(m)) }
func Main(m *testing.M) int {
	return shared.Main(m, "mysqltest", func(p *process) error { return p.proc.Close() })
}

// Addr returns host:port of the server.
func (s *Server) Addr() string { return testenv.Loopback(s.port) }

// DSN returns the data source name with which a user with all rights reaches a
// database. It has the given parameters, such as "session_timeout=1s".
func (s *Server) DSN(database string, params ...string) string {
	return s.DSNAt(s.Addr(), database, params...)
}

// DSNAt is like DSN, but the host and the port are those of a proxy.
func (s *Server) DSNAt(addr, database string, params ...string) string {
	return fmt.Sprintf("%s:%s@tcp(%s)/%s?%s", superuser, password, addr, database, strings.Join(params, "&"))
}

// Password returns the password of the user in [Server.DSN].
func (s *Server) Password() string { return password }

// Database creates an empty database, and returns its name. No other call has returned
// this name.
func (s *Server) Database() string {
	s.t.Helper()
	name := fmt.Sprintf("t%d", s.databases.Add(1))
	s.SQL(s.t, "", "CREATE DATABASE "+name)
	return name
}

// SQL runs statements with the program mariadb in a database, which may be empty. It
// returns the rows that they print, without headers, with a tab between columns.
func (s *Server) SQL(t testing.TB, database, statements string) string {
	t.Helper()
	client, err := program("mariadb")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--no-defaults", "--batch", "--skip-column-names", "--host=127.0.0.1", "--port=" + strconv.Itoa(s.port), "--user=" + superuser}
	if database != "" {
		args = append(args, "--database="+database)
	}
	cmd := exec.Command(client, args...)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+password)
	cmd.Stdin = strings.NewReader(statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}
