package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is one etcd server for a test. If something goes wrong with the server,
// its methods end the test with t.Fatal.
//
// A server sends heartbeats to the other servers every 50ms. The election
// timeout is 500ms, so the shortest lease is 1s. The server has neither the old
// API (v2) nor the gateway for JSON.
type Server struct {
	*process
	testenv.Controls
	t testing.TB
}

// Start starts a server for the test and returns when the server answers. When
// the test ends, the server is killed and its directory removed.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	Require(t)
	p, err := startProcess(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return newServer(t, p)
}

func newServer(t testing.TB, p *process) *Server {
	return &Server{process: p, Controls: testenv.NewControls(t, p.proc, p.launch), t: t}
}

// startProcess starts a server. If another program has taken one of its ports,
// startProcess tries again with other ports.
func startProcess(opts []Option) (*process, error) {
	return testenv.RetryNewPorts(func() (*process, error) {
		p, err := newProcess("single", opts)
		if err != nil {
			return nil, err
		}
		if err = p.prepare(p.member()); err == nil {
			err = p.launch()
		}
		if err != nil {
			p.close()
			return nil, err
		}
		return p, nil
	})
}

var shared testenv.Shared[*process]

// Shared returns the one server that all tests of a binary share. The first call
// starts it. Each test uses a prefix of its own, see [Server.Prefix]. No test
// stops the server, or reads its counters while other tests run.
//
// The server ends with the test binary. If TestMain calls [Main], the binary also
// waits until the server has ended.
func Shared(t testing.TB) *Server {
	t.Helper()
	Require(t)
	p := shared.Get(t, func() (*process, error) { return startProcess(nil) })
	return newServer(t, p)
}

// Main runs the tests and stops the shared server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(etcdtest.Main(m)) }
func Main(m *testing.M) int {
	return shared.Main(m, "etcdtest", func(p *process) error { return p.proc.Close() })
}

// Prefix returns a prefix for keys, such as test17. No two calls return the
// same prefix.
func (s *Server) Prefix() string { return fmt.Sprintf("test%d", s.prefixes.Add(1)) }

// Addr returns host:port of the client port.
func (s *Server) Addr() string { return s.client }

// URL returns the URL of the client port.
func (s *Server) URL() string { return s.settings.scheme + "://" + s.client }

// Metric returns the sum of the values of one of the server's metrics. It
// counts only the lines that have the text label in their labels. If label is
// empty, every line counts.
func (s *Server) Metric(name, label string) float64 {
	s.t.Helper()
	sum, err := s.metric(name, label)
	s.Must(err)
	return sum
}

// Etcdctl runs etcd's command with these arguments against the server, and
// returns what the command has printed.
func (s *Server) Etcdctl(args ...string) string {
	s.t.Helper()
	generous := []string{"--dial-timeout", "30s", "--command-timeout", "60s"} // for a slow machine
	out, err := s.etcdctl(append(generous, args...)...)
	if err != nil {
		s.t.Fatalf("etcdctl %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *Server) etcdctl(args ...string) (output []byte, err error) {
	cmd := exec.Command("etcdctl", append(append([]string{"--endpoints", s.URL()}, s.settings.ctl...), args...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	return cmd.CombinedOutput()
}

// State tells what each server says of itself, and which keys below "locks/" and which
// leases it has. It is for the messages of tests that wait in vain. A server that is
// down or paused gives an error after two seconds.
func State(servers ...*Server) string {
	var b strings.Builder
	for _, s := range servers {
		for _, command := range []string{"endpoint status", "get --prefix locks/", "lease list"} {
			out, err := s.etcdctl(append([]string{"--command-timeout", "2s"}, strings.Fields(command)...)...)
			fmt.Fprintf(&b, "%s: %s: %v\n%s\n", s.Addr(), command, err, out)
		}
	}
	return b.String()
}

// EnableAuth makes the user root and a second user, and turns authentication
// on. The second user may read and write only the keys that begin with prefix.
func (s *Server) EnableAuth(rootPassword, user, password, prefix string) {
	s.t.Helper()
	s.Etcdctl("user", "add", "root:"+rootPassword)
	s.Etcdctl("user", "grant-role", "root", "root")
	s.Etcdctl("user", "add", user+":"+password)
	s.Etcdctl("role", "add", "locks")
	s.Etcdctl("role", "grant-permission", "--prefix", "locks", "readwrite", prefix)
	s.Etcdctl("user", "grant-role", user, "locks")
	s.Etcdctl("auth", "enable")
}
