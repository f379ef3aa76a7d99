package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

var redis = testenv.Store{
	Dependency: testenv.Dependency{
		Name:     "a real Redis",
		Variable: "DLOCK_TEST_REDIS",
		Install:  "apt-get install -y --no-install-recommends redis-server redis-sentinel redis-tools",
	},
	Package: "redistest",
	Find:    func() error { return testenv.OnPath("redis-server", "redis-sentinel", "redis-cli") },
	Ports:   2,
}

// See the methods of [testenv.Store].
var (
	Require      = redis.Require
	RequireClock = redis.RequireClock
	Main         = redis.Main
)

// Server is a Redis server or a Sentinel.
type Server struct{ testenv.Server }

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

// WithClock enables [testenv.Server.SetClock]. Call [RequireClock] first.
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
// name. Because the machine may be busy, the Sentinel waits a minute for the
// master's answer before it fails over. A test that kills the master should
// shorten this time with SENTINEL SET.
func StartSentinel(t testing.TB, name string, master *Server, options ...Option) *Server {
	t.Helper()
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", name, master.Port(0)),
		fmt.Sprintf("sentinel down-after-milliseconds %s 60000", name),
		fmt.Sprintf("sentinel failover-timeout %s 5000", name),
	}
	return start(t, "redis-sentinel", append([]Option{With(lines...)}, options...))
}

func start(t testing.TB, program string, options []Option) *Server {
	t.Helper()
	return &Server{redis.Start(t, configure(program, options))}
}

func configure(program string, options []Option) testenv.Configure {
	return func(s *testenv.Server, _ []*testenv.Server) (command []string, ready func() bool) {
		c := &configuration{}
		for _, option := range options {
			option(c)
		}
		lines := []string{"bind 127.0.0.1", "port " + strconv.Itoa(s.Port(0)), "dir " + s.Dir(), "daemonize no", `logfile ""`}
		if program == "redis-server" {
			lines = append(lines, "unixsocket "+s.File("redis.sock"))
		}
		if c.certs != nil {
			lines = append(lines, "tls-port "+strconv.Itoa(s.Port(1)), "tls-auth-clients optional",
				"tls-cert-file "+c.certs.Server.Cert, "tls-key-file "+c.certs.Server.Key, "tls-ca-cert-file "+c.certs.CA)
		}
		if c.clock {
			command = s.ClockCommand()
		}
		file := s.Write("redis.conf", strings.Join(append(lines, c.lines...), "\n")+"\n")
		return append(command, program, file), func() bool {
			log := s.Log()
			return strings.Contains(log, "Ready to accept connections") || strings.Contains(log, "+monitor master")
		}
	}
}

// SecureAddr returns host:port of the TLS port, which exists only with
// [WithTLS].
func (s *Server) SecureAddr() string { return testenv.Loopback(s.Port(1)) }

func (s *Server) Socket() string { return s.File("redis.sock") }

// Shared returns a server that all tests of a test binary share. It stores
// nothing on disk. Tests must use separate keys and must not stop the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{redis.Shared(t, configure("redis-server", []Option{inMemory}))}
}
