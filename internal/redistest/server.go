package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

var redis = testenv.Dependency{
	Name:     "a real Redis",
	Variable: "DLOCK_TEST_REDIS",
	Install:  "apt-get install -y --no-install-recommends redis-server redis-sentinel",
}

// Require skips the test if Redis is not installed, or fails it if
// DLOCK_TEST_REDIS=require is set. [Start] and similar functions call Require.
func Require(t testing.TB) {
	t.Helper()
	for _, program := range []string{"redis-server", "redis-sentinel"} {
		_, err := exec.LookPath(program)
		redis.Require(t, err)
	}
}

// RequireCLI is like [Require], for redis-cli.
func RequireCLI(t testing.TB) {
	t.Helper()
	_, err := exec.LookPath("redis-cli")
	cli := redis
	cli.Name, cli.Install = "redis-cli", "apt-get install -y --no-install-recommends redis-tools"
	cli.Require(t, err)
}

// Server is a Redis server or a Sentinel.
type Server struct {
	testenv.Controls
	t       testing.TB
	proc    *testenv.Process
	program string
	port    int
	tlsPort int
}

// Option configures a server.
type Option func(*configuration)

type configuration struct {
	lines []string
	certs *testenv.Certs
	clock bool
}

// With adds lines to the server's configuration file, such as "appendonly yes".
// A later line overrides an earlier one.
func With(lines ...string) Option {
	return func(c *configuration) { c.lines = append(c.lines, lines...) }
}

// Durable makes the server sync each write to disk before it replies, so that a
// crash loses nothing.
func Durable() Option { return With("appendonly yes", "appendfsync always") }

// WithTLS adds a TLS port. Clients need no certificate, but if they send one,
// it must be signed by certs.CA.
func WithTLS(certs *testenv.Certs) Option {
	return func(c *configuration) { c.certs = certs }
}

// RequireClock is like [Require], for [WithClock], which does not work on every
// machine.
func RequireClock(t testing.TB) {
	t.Helper()
	Require(t)
	testenv.RequireClock(t, redis)
}

// WithClock enables [Server.SetClock]. Call [RequireClock] first.
func WithClock() Option {
	return func(c *configuration) { c.clock = true }
}

// Start starts a server and waits until it is ready. When the test ends, the
// server is killed and its directory removed. Nothing is stored on disk unless
// an option says so.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	return start(t, "redis-server", append([]Option{inMemory, With("repl-diskless-sync-delay 0")}, options...))
}

var inMemory = With(`save ""`, "appendonly no")

// StartSentinel starts a Sentinel that monitors the master under the given
// name. The Sentinel fails over after the master has not answered for a minute,
// so that a busy machine does not trigger it. A test that kills the master
// should lower this limit with SENTINEL SET.
func StartSentinel(t testing.TB, name string, master *Server, options ...Option) *Server {
	t.Helper()
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", name, master.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 60000", name),
		fmt.Sprintf("sentinel failover-timeout %s 5000", name),
	}
	return start(t, "redis-sentinel", append([]Option{With(lines...)}, options...))
}

// use directs later failures of the server to t.
func (s *Server) use(t testing.TB) *Server {
	s.t, s.Controls = t, testenv.NewControls(t, s.proc, s.launch)
	return s
}

var servers = testenv.Servers[*Server]{
	Name: "redistest", Require: Require, Launch: (*Server).launch,
	Close: func(s *Server) error { return s.proc.Close() },
}

func start(t testing.TB, program string, options []Option) *Server {
	t.Helper()
	return servers.Start(t, func() (*Server, error) { return newServer(program, options) }).use(t)
}

func newServer(program string, options []Option) (s *Server, err error) {
	s = &Server{program: program}
	c := &configuration{}
	for _, option := range options {
		option(c)
	}
	if s.port, err = testenv.FreePort(); err != nil {
		return nil, err
	}
	if c.certs != nil {
		if s.tlsPort, err = testenv.FreePort(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(file, []byte(s.file(c, dir)), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	command, err := c.command(program, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.proc, err = testenv.NewProcess(dir, append(command, file))
	return s, err
}

func (c *configuration) command(program, dir string) ([]string, error) {
	path, err := exec.LookPath(program)
	if err != nil || !c.clock {
		return []string{path}, err
	}
	command, err := testenv.ClockCommand(dir)
	return append(command, path), err
}

func (s *Server) file(c *configuration, dir string) string {
	lines := []string{"bind 127.0.0.1", "port " + strconv.Itoa(s.port), "dir " + dir, "daemonize no", `logfile ""`}
	if s.program == "redis-server" {
		lines = append(lines, "unixsocket "+filepath.Join(dir, "redis.sock"))
	}
	if c.certs != nil {
		lines = append(lines, "tls-port "+strconv.Itoa(s.tlsPort), "tls-auth-clients optional",
			"tls-cert-file "+c.certs.Server.Cert, "tls-key-file "+c.certs.Server.Key, "tls-ca-cert-file "+c.certs.CA)
	}
	return strings.Join(append(lines, c.lines...), "\n") + "\n"
}

func (s *Server) launch() error {
	offset := len(s.proc.Log(0))
	return s.proc.Start(testenv.Startup{
		Ready: func() bool {
			log := s.proc.Log(offset)
			return strings.Contains(log, "Ready to accept connections") || strings.Contains(log, "+monitor master")
		},
		PortTaken: func(log string) bool { return strings.Contains(log, "Address already in use") },
		Exiting:   func(log string) bool { return strings.Contains(log, "FATAL") },
	})
}

// Addr returns host:port of the port without TLS.
func (s *Server) Addr() string { return testenv.Loopback(s.port) }

// SecureAddr returns host:port of the TLS port, which exists only with
// [WithTLS].
func (s *Server) SecureAddr() string { return testenv.Loopback(s.tlsPort) }

// Socket returns the path of the server's Unix socket.
func (s *Server) Socket() string { return filepath.Join(s.proc.Dir(), "redis.sock") }

// SetClock sets the server's wall clock to the machine's clock plus offset. The
// server must have been started with [WithClock].
func (s *Server) SetClock(offset time.Duration) {
	s.t.Helper()
	s.Must(testenv.SetClock(s.proc.Dir(), offset))
}

// Shared returns a server that all tests of a test binary share. The server stores
// nothing on disk. Tests must use separate keys and must not stop the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	s := *servers.Shared(t, func() (*Server, error) { return newServer("redis-server", []Option{inMemory}) })
	return s.use(t)
}

// Main runs the tests and stops the shared server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m *testing.M) int { return servers.Main(m) }
