package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is a PostgreSQL server for a test. It listens on a loopback port and
// requires a password.
type Server struct {
	*process
	testenv.Controls
	t testing.TB
}

// Start starts a server and waits until it is ready. It is killed and its
// directory removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return newServer(t, servers.Start(t, func() (*process, error) { return newProcess(opts) }))
}

func newServer(t testing.TB, p *process) *Server {
	return &Server{process: p, Controls: testenv.NewControls(t, p.proc, p.relaunch), t: t}
}

// Standby starts a server that replicates this one. It is read-only until
// [Server.Promote].
func (s *Server) Standby(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return Start(t, append(opts, func(o *settings) { o.primary = s.process })...)
}

// Promote turns a standby server into a primary. The old primary must have been
// killed.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if s.SQL(t, "SELECT pg_promote()") != "t" {
		t.Fatal("the server was not promoted")
	}
}

var servers = testenv.Servers[*process]{
	Name: "pgtest", Require: Require, Launch: (*process).launch,
	Close: func(p *process) error { return p.proc.Close() },
}

// Shared returns the server shared by all tests of a binary. Each test must use
// its own schema (see [Server.Schema]), and must not stop the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return newServer(t, servers.Shared(t, func() (*process, error) { return newProcess(nil) }))
}

// Main runs the tests and stops the shared server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int { return servers.Main(m) }

// Addr returns host:port of the server.
func (s *Server) Addr() string { return testenv.Loopback(s.port) }

// DSN returns a URL for the database, with the superuser. params, such as
// "schema=t1", are appended to it. If they set schema or session_timeout but
// not empty_is_new, DSN adds empty_is_new=true, so that an empty schema needs
// no grace period.
func (s *Server) DSN(params ...string) string { return s.DSNAt(s.Addr(), params...) }

// DSNAt is like DSN for another address, such as that of a proxy.
func (s *Server) DSNAt(addr string, params ...string) string {
	query := strings.Join(append([]string{"sslmode=disable"}, params...), "&")
	if !strings.Contains(query, "empty_is_new=") && (strings.Contains(query, "schema=") || strings.Contains(query, "session_timeout=")) {
		query += "&empty_is_new=true"
	}
	u := url.URL{Scheme: "postgres", User: url.UserPassword(superuser, password), Host: addr, Path: "/postgres", RawQuery: query}
	return u.String()
}

// Password returns the superuser's password.
func (s *Server) Password() string { return password }

// Schema returns a unique schema name. It does not create the schema.
func (s *Server) Schema() string { return fmt.Sprintf("t%d", s.schemas.Add(1)) }

// SQL runs statements with psql and returns the resulting rows, without headers
// and with a bar between columns.
func (s *Server) SQL(t testing.TB, statements string) string {
	t.Helper()
	psql, err := program("psql")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", superuser, "-d", "postgres", "-c", statements)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// SetClock sets the server's wall clock to the machine's clock plus offset. It
// requires [WithClock].
func (s *Server) SetClock(offset time.Duration) {
	s.t.Helper()
	s.Must(testenv.SetClock(s.proc.Dir(), offset))
}
