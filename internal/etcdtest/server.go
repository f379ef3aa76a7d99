package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is an etcd server. Its methods fail the test on an error.
//
// The heartbeat interval is 50 ms and the election timeout 500 ms, so the
// shortest lease is 1 s. The v2 API and the JSON gateway are disabled.
type Server struct {
	*process
	testenv.Controls
	t testing.TB
}

// Start starts a server and waits until it is ready. When the test ends, the
// server is killed and its directory removed.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return newServer(t, servers.Start(t, func() (*process, error) { return newProcess("single", opts) }))
}

func newServer(t testing.TB, p *process) *Server {
	return &Server{process: p, Controls: testenv.NewControls(t, p.proc, p.launch), t: t}
}

// Learner starts another member of the server's cluster, which has no vote.
func (s *Server) Learner(t testing.TB) *Server {
	t.Helper()
	p, err := newProcess("learner", []Option{WithArgs("--initial-cluster-state", "existing")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.close() })
	s.Etcdctl("member", "add", p.name, "--learner", "--peer-urls", "http://"+p.peer)
	if err := p.prepare(s.member() + "," + p.member()); err != nil {
		t.Fatal(err)
	}
	if err := testenv.RetrySamePorts(p.launch); err != nil {
		t.Fatal(err)
	}
	return newServer(t, p)
}

var servers = testenv.Servers[*process]{
	Name: "etcdtest", Require: Require, Close: (*process).close,
	Launch: func(p *process) error {
		if err := p.prepare(p.member()); err != nil {
			return err
		}
		return p.launch()
	},
}

// Shared returns a server that all tests of a test binary share. Tests must use
// separate prefixes (see [Server.Prefix]), must not stop the server, and must not
// read its metrics while other tests run.
func Shared(t testing.TB) *Server {
	t.Helper()
	return newServer(t, servers.Shared(t, func() (*process, error) { return newProcess("single", nil) }))
}

// Main runs the tests and stops the shared server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(etcdtest.Main(m)) }
func Main(m *testing.M) int { return servers.Main(m) }

// Prefix returns a unique prefix for keys, such as test17.
func (s *Server) Prefix() string { return fmt.Sprintf("test%d", s.prefixes.Add(1)) }

// Addr returns host:port for clients.
func (s *Server) Addr() string { return s.client }

// URL returns the URL for clients.
func (s *Server) URL() string { return s.settings.scheme + "://" + s.client }

// DataDir returns the directory of the server's files.
func (s *Server) DataDir() string { return filepath.Join(s.proc.Dir(), "data") }

// Metric returns the sum of a metric over all lines whose labels contain label,
// which may be empty.
func (s *Server) Metric(name, label string) float64 {
	s.t.Helper()
	sum, err := s.metric(name, label)
	s.Must(err)
	return sum
}

// Etcdctl runs etcdctl against the server and returns its output.
func (s *Server) Etcdctl(args ...string) string {
	s.t.Helper()
	generous := []string{"--dial-timeout", "30s", "--command-timeout", "60s"} // for slow machines
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

// State describes the status of the servers, their keys below "locks/" and
// their leases, for use in failure messages. For a server that is down or
// paused it shows an error after two seconds.
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

// EnableAuth creates the user root and another user, and turns on
// authentication. The other user may only access keys with the given prefix.
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
