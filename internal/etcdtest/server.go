package etcdtest

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

var etcd = testenv.Store{
	Dependency: testenv.Dependency{
		Name:     "a real etcd",
		Variable: "DLOCK_TEST_ETCD",
		Install: "apt-get install -y --no-install-recommends etcd-server etcd-client, " +
			"or the programs etcd and etcdctl of a release on the PATH",
	},
	Package: "etcdtest",
	Find:    func() error { return testenv.OnPath("etcd", "etcdctl") },
	Ports:   3, // for clients, other members, and metrics
}

// See the methods of [testenv.Store].
var (
	Require = etcd.Require
	Main    = etcd.Main
)

type settings struct {
	scheme string   // of the client port: http or https
	args   []string // additional arguments for etcd
	ctl    []string // additional arguments for etcdctl

	hangingDisk bool
}

// Option configures a server.
type Option func(*settings)

func WithArgs(args ...string) Option {
	return func(s *settings) { s.args = append(s.args, args...) }
}

// WithTLS makes the server use TLS on its client port, with the given
// certificate. If mutual is true, clients must present a certificate signed by
// certs.CA.
func WithTLS(certs *testenv.Certs, server testenv.Pair, mutual bool) Option {
	return func(s *settings) {
		s.scheme = "https"
		s.args = append(s.args, "--cert-file", server.Cert, "--key-file", server.Key)
		if mutual {
			s.args = append(s.args, "--client-cert-auth", "--trusted-ca-file", certs.CA)
		}
		s.ctl = append(s.ctl, "--cacert", certs.CA, "--cert", certs.Client.Cert, "--key", certs.Client.Key)
	}
}

func newSettings(opts []Option) *settings {
	s := &settings{scheme: "http"}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Server is an etcd server. Its methods fail the test on an error.
//
// The heartbeat interval is 50 ms and the election timeout 500 ms, so the
// shortest lease is 1 s. The v2 API and the JSON gateway are disabled.
type Server struct {
	testenv.Server
	*settings
}

// Start starts a server and waits until it is ready. When the test ends, the
// server is killed and its directory removed.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return StartEnsemble(t, 1, opts...).Servers[0]
}

// StartEnsemble starts n servers and waits until all of them are ready and know
// the leader. When the test ends, the servers are killed and their directories
// removed.
func StartEnsemble(t testing.TB, n int, opts ...Option) *Ensemble {
	t.Helper()
	e, settings := &Ensemble{}, newSettings(opts)
	for _, s := range etcd.StartAll(t, n, settings.configure) {
		e.Servers = append(e.Servers, &Server{*s, settings})
	}
	return e
}

// Learner starts another member of the server's cluster, one without a vote.
func (s *Server) Learner(t testing.TB) *Server {
	t.Helper()
	settings := newSettings([]Option{WithArgs("--initial-cluster-state", "existing")})
	return &Server{etcd.Start(t, func(learner *testenv.Server, _ []*testenv.Server) ([]string, func() bool) {
		s.Etcdctl("member", "add", name(learner), "--learner", "--peer-urls", peerURL(learner))
		return settings.configure(learner, []*testenv.Server{&s.Server, learner})
	}), settings}
}

// Shared returns a server that all tests of a test binary share. Tests must use
// separate prefixes (see [Server.Prefix]), and must neither stop the server nor
// read its metrics while other tests run.
func Shared(t testing.TB) *Server {
	t.Helper()
	settings := newSettings(nil)
	return &Server{etcd.Shared(t, settings.configure), settings}
}

func (c *settings) configure(s *testenv.Server, all []*testenv.Server) (command []string, ready func() bool) {
	var members []string
	for _, m := range all {
		members = append(members, name(m)+"="+peerURL(m))
	}
	if c.hangingDisk {
		command = hangDiskCommand(s)
	}
	clients, cluster := c.scheme+"://"+s.Addr(), strings.Join(members, ",")
	command = append(command, "etcd", "--name", name(s), "--data-dir", s.File("data"),
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peerURL(s), "--initial-advertise-peer-urls", peerURL(s),
		"--listen-metrics-urls", "http://"+testenv.Loopback(s.Port(2)),
		"--initial-cluster", cluster, "--initial-cluster-token", cluster,
		"--heartbeat-interval", "50", "--election-timeout", "500",
		"--enable-grpc-gateway=false")
	return append(command, c.args...), func() bool { // true only if the cluster has a leader
		text, err := get(s, "/health")
		return err == nil && strings.Contains(text, `"health":"true"`)
	}
}

func name(s *testenv.Server) string    { return fmt.Sprint("member", s.Port(0)) }
func peerURL(s *testenv.Server) string { return "http://" + testenv.Loopback(s.Port(1)) }

func (s *Server) metric(name, label string) (sum float64, err error) {
	text, err := get(&s.Server, "/metrics")
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), " ")
		if n, labels, _ := strings.Cut(key, "{"); n == name && strings.Contains(labels, label) {
			x, _ := strconv.ParseFloat(value, 64)
			sum += x
		}
	}
	return sum, err
}

// get uses the metrics port, because etcd does not count requests to that port.
func get(s *testenv.Server, path string) (string, error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + testenv.Loopback(s.Port(2)) + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// Prefix returns a unique prefix for keys, such as test17.
func (s *Server) Prefix() string { return s.Unique("test") }

func (s *Server) URL() string { return s.scheme + "://" + s.Addr() }

func (s *Server) DataDir() string { return s.File("data") }

// Metric returns the sum of a metric over all lines whose labels contain label,
// which may be empty.
func (s *Server) Metric(name, label string) float64 {
	s.T.Helper()
	sum, err := s.metric(name, label)
	s.Must(err)
	return sum
}

func (s *Server) Etcdctl(args ...string) string {
	s.T.Helper()
	generous := []string{"--dial-timeout", "30s", "--command-timeout", "60s"} // for slow machines
	out, err := s.etcdctl(append(generous, args...)...)
	if err != nil {
		s.T.Fatalf("etcdctl %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (s *Server) etcdctl(args ...string) (output []byte, err error) {
	cmd := exec.Command("etcdctl", append(append([]string{"--endpoints", s.URL()}, s.ctl...), args...)...)
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
	s.T.Helper()
	s.Etcdctl("user", "add", "root:"+rootPassword)
	s.Etcdctl("user", "grant-role", "root", "root")
	s.Etcdctl("user", "add", user+":"+password)
	s.Etcdctl("role", "add", "locks")
	s.Etcdctl("role", "grant-permission", "--prefix", "locks", "readwrite", prefix)
	s.Etcdctl("user", "grant-role", user, "locks")
	s.Etcdctl("auth", "enable")
}

// StartProxy starts etcd's gRPC proxy in front of the server, and returns its
// address.
func StartProxy(t testing.TB, s *Server) (addr string) {
	t.Helper()
	return etcd.Start(t, func(p *testenv.Server, _ []*testenv.Server) ([]string, func() bool) {
		return []string{"etcd", "grpc-proxy", "start", "--endpoints", s.Addr(), "--listen-addr", p.Addr()}, func() bool { return p.Accepts(0) }
	}).Addr()
}
