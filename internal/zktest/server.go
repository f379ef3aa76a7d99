package zktest

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is a ZooKeeper server. Its methods fail the test on an error.
//
// Session timeouts range from 1s to 10 minutes, and a tick is 500ms.
// Connections per client are unlimited. Empty containers are kept, see
// [WithContainerCheck]. All four-letter words are enabled.
type Server struct {
	*process
	testenv.Controls
	t testing.TB
}

// Start starts a server and waits until it is ready. It is killed and its
// directory removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return newServer(t, servers.Start(t, func() (*process, error) { return newProcess(newSettings(opts)) }))
}

func newServer(t testing.TB, p *process) *Server {
	return &Server{process: p, Controls: testenv.NewControls(t, p.proc, p.launch), t: t}
}

var servers = testenv.Servers[*process]{
	Name: "zktest", Require: Require, Launch: (*process).launch,
	Close: func(p *process) error { return p.proc.Close() },
}

// Addr returns the address of the client port without TLS, as host:port.
func (s *Server) Addr() string { return testenv.Loopback(s.port) }

// SecureAddr returns the address of the client port with TLS, as host:port. It
// requires [WithTLS].
func (s *Server) SecureAddr() string { return testenv.Loopback(s.securePort) }

// FourLetter returns the answer to a four-letter word, such as ruok, stat or
// cons.
func (s *Server) FourLetter(word string) string {
	s.t.Helper()
	answer, err := s.fourLetter(word)
	s.Must(err)
	return answer
}

// Mntr returns the numbers that the server reports in answer to the four-letter
// word mntr. Fractional parts are dropped.
func (s *Server) Mntr() map[string]int64 {
	s.t.Helper()
	numbers, err := s.mntr()
	s.Must(err)
	return numbers
}

// Watches returns the number of watches on the server.
func (s *Server) Watches() int64 {
	s.t.Helper()
	return s.Mntr()["zk_watch_count"]
}

// Ephemerals returns the number of ephemeral nodes on the server.
func (s *Server) Ephemerals() int64 {
	s.t.Helper()
	return s.Mntr()["zk_ephemerals_count"]
}

// Requests returns the number of packets that clients have sent to the server.
// Subtract an earlier result to count those in between.
//
// It is the server's zk_packets_received minus the four-letter words sent by
// this package. It includes all requests (a Multi counts as one), new
// connections, the closing of sessions, and pings. go-zookeeper sends a ping
// every third of the session timeout, so use long timeouts for exact counts, or
// [Proxy.Frames], which counts each operation separately. In an ensemble, the
// count starts over after each election.
func (s *Server) Requests(t testing.TB) int64 {
	t.Helper()
	n, err := s.requests()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
