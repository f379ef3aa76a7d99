package natstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

var nats = testenv.Store{
	Dependency: testenv.Dependency{
		Name:     "a real NATS server",
		Variable: "DLOCK_TEST_NATS",
		Install:  "sh scripts/need-nats.sh, or nats-server 2.12 or later on the PATH",
	},
	Package: "natstest",
	Find:    func() error { return testenv.OnPath(program()) },
	Ports:   3, // for clients, other servers, and the monitor
}

// See the methods of [testenv.Store].
var (
	Require = nats.Require
	Main    = nats.Main
)

// program returns the server that scripts/need-nats.sh has built, or else one
// on the PATH.
func program() string {
	if dir, err := os.UserCacheDir(); err == nil {
		built := filepath.Join(dir, "dlock", "nats-server")
		if _, err := os.Stat(built); err == nil {
			return built
		}
	}
	return "nats-server"
}

// Option configures a server.
type Option func(*settings)

type settings struct{ lines []string }

// With adds lines to the server's configuration file.
func With(lines ...string) Option {
	return func(s *settings) { s.lines = append(s.lines, lines...) }
}

// WithTLS makes the server require TLS and a certificate of the client, signed
// by certs.CA.
func WithTLS(certs *testenv.Certs) Option {
	return With(fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }",
		certs.Server.Cert, certs.Server.Key, certs.CA))
}

// Server is a NATS server. Its methods fail the test on an error.
type Server struct{ testenv.Server }

// Start starts a server without a cluster, and waits until it is ready. When the
// test ends, the server is killed and its directory removed.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	return &Server{nats.Start(t, configure(options, nil))}
}

// Shared returns a server that all tests of a test binary share. Tests must use
// separate streams, see [testenv.Server.Unique], and must not stop the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{nats.Shared(t, configure(nil, nil))}
}

func name(s *testenv.Server) string { return fmt.Sprint("server-", s.Port(0)) }

func configure(options []Option, routes func(s *testenv.Server, all []*testenv.Server) []string) testenv.Configure {
	return func(s *testenv.Server, all []*testenv.Server) (command []string, ready func() bool) {
		c := &settings{}
		for _, option := range options {
			option(c)
		}
		lines := []string{"server_name: " + name(s), "listen: " + s.Addr(), "http: " + testenv.Loopback(s.Port(2)),
			fmt.Sprintf("jetstream { store_dir: %q }", s.File("data"))}
		if routes != nil {
			// Servers must reach each other only through the proxies.
			lines = append(lines, fmt.Sprintf("cluster { name: test, listen: %s, advertise: \"127.0.0.1:1\", routes: [%s] }",
				testenv.Loopback(s.Port(1)), strings.Join(routes(s, all), ", ")))
		}
		file := s.Write("nats.conf", strings.Join(append(lines, c.lines...), "\n")+"\n")
		return []string{program(), "-c", file}, func() bool {
			var health struct{ Status string }
			return monitor(s, "/healthz", &health) == nil && health.Status == "ok"
		}
	}
}

func monitor(s *testenv.Server, path string, answer any) error {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + testenv.Loopback(s.Port(2)) + path)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	return json.NewDecoder(reply.Body).Decode(answer)
}

// Streams returns the leader of each stream on the server, by the stream's
// name. Without a cluster, the leader is empty.
func (s *Server) Streams() (map[string]string, error) {
	var answer struct {
		Accounts []struct {
			Streams []struct {
				Name    string
				Cluster struct{ Leader string }
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	err := monitor(&s.Server, "/jsz?accounts=true&streams=true", &answer)
	found := make(map[string]string)
	for _, account := range answer.Accounts {
		for _, stream := range account.Streams {
			found[stream.Name] = stream.Cluster.Leader
		}
	}
	return found, err
}

// Messages returns the number of messages that the server has received.
func (s *Server) Messages() int {
	s.T.Helper()
	var answer struct {
		In int `json:"in_msgs"`
	}
	s.Must(monitor(&s.Server, "/varz", &answer))
	return answer.In
}
