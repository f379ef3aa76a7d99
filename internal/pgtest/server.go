package pgtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

var postgres = testenv.Store{
	Dependency: testenv.Dependency{
		Name:     "a real PostgreSQL",
		Variable: "DLOCK_TEST_POSTGRES",
		Install:  "apt-get install -y --no-install-recommends postgresql, or its programs on the PATH",
	},
	Package: "pgtest",
	Find: func() error {
		return testenv.OnPath(program("initdb"), program("postgres"), program("psql"))
	},
	User: "postgres", // because PostgreSQL refuses to run as root
}

// See the methods of [testenv.Store].
var (
	Require      = postgres.Require
	RequireClock = postgres.RequireClock
	Main         = postgres.Main
)

// program finds a PostgreSQL program, which Debian installs outside the PATH.
// DLOCK_TEST_POSTGRES_BIN may name a directory with another version.
func program(name string) string {
	other := filepath.Join(os.Getenv("DLOCK_TEST_POSTGRES_BIN"), name)
	if _, err := os.Stat(other); err == nil && filepath.IsAbs(other) {
		return other
	}
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name); len(found) > 0 {
		return slices.Max(found)
	}
	return name
}

// Credentials of the superuser of every server.
const (
	superuser = "dlock"
	password  = "correct-horse"
)

// Option configures a server.
type Option func(*settings)

type settings struct {
	config  []string // name=value
	tls     *testenv.Pair
	clock   bool
	primary *Server
}

// WithConfig sets server parameters, such as "max_connections=20". fsync is off
// by default, because tests kill processes but not machines. Benchmarks should
// set "fsync=on".
func WithConfig(lines ...string) Option {
	return func(s *settings) { s.config = append(s.config, lines...) }
}

// WithTLS makes the server offer TLS with the given certificate.
func WithTLS(server testenv.Pair) Option {
	return func(s *settings) { s.tls = &server }
}

// WithClock enables [testenv.Server.SetClock]. Call [RequireClock] first.
func WithClock() Option {
	return func(s *settings) { s.clock = true }
}

// Server is a PostgreSQL server for a test. It listens on a loopback port and
// requires a password.
type Server struct{ testenv.Server }

// Start starts a server and waits until it is ready. It is killed and its
// directory removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return &Server{postgres.Start(t, configure(opts))}
}

// Shared returns the server shared by all tests of a binary. Each test must use
// its own schema (see [Server.Schema]), and must not stop the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{postgres.Shared(t, configure(nil))}
}

// Standby starts a server that replicates this one. It is read-only until
// [Server.Promote].
func (s *Server) Standby(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return Start(t, append(opts, func(o *settings) { o.primary = s })...)
}

func configure(opts []Option) testenv.Configure {
	return func(s *testenv.Server, _ []*testenv.Server) (command []string, ready func() bool) {
		var c settings
		for _, opt := range opts {
			opt(&c)
		}
		data := s.File("data")
		if c.primary == nil {
			s.Run(program("initdb"), "-D", data, "-U", superuser, "--pwfile="+s.Write("password", scramSecret()),
				"-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync")
		} else {
			s.Run(program("pg_basebackup"), "-D", data, "-R", "-c", "fast", "--no-sync",
				"-d", fmt.Sprintf("postgres://%s:%s@%s/", superuser, password, c.primary.Addr()))
		}
		config := append([]string{"max_connections=300", "shared_buffers=64MB", "fsync=off", "dynamic_shared_memory_type=mmap"}, c.config...)
		if c.tls != nil { // copied, because the server must own its key
			config = append(config, "ssl=on", "ssl_cert_file="+s.Copy(c.tls.Cert), "ssl_key_file="+s.Copy(c.tls.Key))
		}
		if c.clock {
			command = s.ClockCommand()
		}
		command = append(command, program("postgres"), "-D", data, "-p", strconv.Itoa(s.Port(0)), "-h", "127.0.0.1", "-k", s.Dir())
		for _, line := range config {
			command = append(command, "-c", line)
		}
		return command, func() bool { // PID and state are lines 1 and 8
			text, err := os.ReadFile(s.File("data/postmaster.pid"))
			lines := strings.Split(string(text), "\n")
			return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(s.Pid()) && strings.TrimSpace(lines[7]) == "ready"
		}
	}
}

// scramSecret follows RFC 5803 with one iteration, because 4096 are slow under
// the race detector.
func scramSecret() string {
	salt := "0123456789abcdef"
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	salted := mac([]byte(password), salt+"\x00\x00\x00\x01")
	stored := sha256.Sum256(mac(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", encode([]byte(salt)), encode(stored[:]), encode(mac(salted, "Server Key")))
}

// Pgbouncer starts PgBouncer in front of the server and returns its address.
// PgBouncer pools transactions, with at most the given number of connections to
// the server.
func (s *Server) Pgbouncer(t testing.TB, connections int) (addr string) {
	t.Helper()
	return pgbouncer.Start(t, func(b *testenv.Server, _ []*testenv.Server) ([]string, func() bool) {
		users := b.Write("users", fmt.Sprintf("%q %q\n", superuser, password))
		config := b.Write("pgbouncer.ini", fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%d dbname=postgres\n"+
			"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nauth_type = plain\nauth_file = %s\n"+
			"unix_socket_dir =\npool_mode = transaction\ndefault_pool_size = %d\nmax_client_conn = 200\n", s.Port(0), b.Port(0), users, connections))
		return []string{"pgbouncer", config}, func() bool { return b.Accepts(0) }
	}).Addr()
}

var pgbouncer = testenv.Store{
	Dependency: testenv.Dependency{
		Name:     "pgbouncer",
		Variable: postgres.Variable,
		Install:  "apt-get install -y --no-install-recommends pgbouncer",
	},
	Package: "pgtest",
	Find:    func() error { return testenv.OnPath("pgbouncer") },
	User:    postgres.User,
}

// Promote turns a standby server into a primary. The old primary must have been
// killed.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	if s.SQL(t, "SELECT pg_promote()") != "t" {
		t.Fatal("the server was not promoted")
	}
}

// DSN returns a URL for the database, with the superuser. It appends params,
// such as "schema=t1". If these set schema or session_timeout but not
// empty_is_new, DSN adds empty_is_new=true, so that an empty schema needs no
// grace period.
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
func (s *Server) Schema() string { return s.Unique("t") }

// SQL runs statements with psql and returns the resulting rows, without headers
// and with a bar between columns.
func (s *Server) SQL(t testing.TB, statements string) string {
	t.Helper()
	cmd := exec.Command(program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port(0)), "-U", superuser, "-d", "postgres", "-c", statements)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}
