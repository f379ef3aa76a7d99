package zktest

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is one ZooKeeper server for a test. If its methods fail, they end the
// test with t.Fatal.
//
// Sessions last from 1s to 10 minutes. A tick is 500ms. The number of
// connections per client is not limited. Empty containers stay: see
// [WithContainerCheck]. The server answers every four-letter word.
type Server struct {
	*process
	testenv.Controls
	t testing.TB
}

// Start starts a server for the test and returns when it answers. When the test
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

// startProcess starts a server. It retries with other ports if another program
// has taken one.
func startProcess(opts []Option) (*process, error) {
	return testenv.RetryNewPorts(func() (*process, error) {
		p, err := newProcess(newSettings(opts))
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

// Addr returns host:port of the plain client port.
func (s *Server) Addr() string { return testenv.Loopback(s.port) }

// SecureAddr returns host:port of the TLS client port. The server must have
// been started with [WithTLS].
func (s *Server) SecureAddr() string { return testenv.Loopback(s.securePort) }

// FourLetter returns the answer to a four-letter word, such as ruok, stat or
// cons.
func (s *Server) FourLetter(word string) string {
	s.t.Helper()
	answer, err := s.fourLetter(word)
	s.Must(err)
	return answer
}

// Mntr returns the numbers in the answer to the four-letter word mntr, without
// their fractions.
func (s *Server) Mntr() map[string]int64 {
	s.t.Helper()
	numbers, err := s.mntr()
	s.Must(err)
	return numbers
}

// Watches returns how many watches the server holds.
func (s *Server) Watches() int64 {
	s.t.Helper()
	return s.Mntr()["zk_watch_count"]
}

// Ephemerals returns how many ephemeral nodes the server holds.
func (s *Server) Ephemerals() int64 {
	s.t.Helper()
	return s.Mntr()["zk_ephemerals_count"]
}

// Requests returns how many packets clients have sent to the server since it
// started. Subtract an earlier result to count those in between.
//
// It is the server's zk_packets_received without the four-letter words of this
// package. It includes every request (a Multi as one), the opening of every
// connection, the closing of every session, and every ping.
//
// go-zookeeper sends a ping every third of the session timeout, whether or not
// there are other requests. To count requests exactly, give the sessions a long
// timeout, or use [Proxy.Frames], which counts each operation by itself. The
// servers of an ensemble restart from zero after each election.
func (s *Server) Requests(t testing.TB) int64 {
	t.Helper()
	n, err := s.requests()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
