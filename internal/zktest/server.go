package zktest

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is one ZooKeeper server, as a test sees it. Trouble with it is a
// t.Fatal of the test that the server was started for or shared with.
//
// Its sessions last from 1s to 10 minutes, a tick is 500ms, there is no limit
// to the connections of a client, empty containers stay (see
// [WithContainerCheck]), and every four-letter word is answered.
type Server struct {
	*process
	t testing.TB
}

// Start starts a server of its own for the test and returns once it answers.
// It is killed and its directory removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	Require(t)
	p, err := startProcess(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.proc.Close() })
	return &Server{process: p, t: t}
}

// startProcess tries again with other ports when somebody was faster to use one.
func startProcess(opts []Option) (*process, error) {
	for {
		p, err := newProcess(newSettings(opts))
		if err != nil {
			return nil, err
		}
		if err = p.launch(); err == nil {
			return p, nil
		}
		p.proc.Close()
		if !errors.Is(err, testenv.ErrPortTaken) {
			return nil, err
		}
	}
}

// Addr returns host:port of the plain client port.
func (s *Server) Addr() string { return testenv.Loopback(s.port) }

// SecureAddr returns host:port of the TLS client port of a server started [WithTLS].
func (s *Server) SecureAddr() string { return testenv.Loopback(s.securePort) }

// Kill ends the server with SIGKILL, as a crash would. Its data stays for
// [Server.Restart].
func (s *Server) Kill() {
	s.t.Helper()
	s.must(s.proc.Kill())
}

// Stop ends the server with SIGTERM. Its data stays for [Server.Restart].
func (s *Server) Stop() {
	s.t.Helper()
	s.must(s.proc.Stop())
}

// Restart starts the server again after [Server.Kill] or [Server.Stop], with
// the same port and data, and returns once it answers. A server that still runs
// is killed first. A server of an ensemble answers before it has found the
// others: see [Ensemble.WaitQuorum].
func (s *Server) Restart() {
	s.t.Helper()
	s.must(s.proc.Kill())
	// Another program may sit on the port for a moment: every process that looks for
	// a free one tries it out.
	var err error
	for range 5 {
		if err = s.launch(); !errors.Is(err, testenv.ErrPortTaken) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.must(err)
}

// Pause stops the server's process with SIGSTOP: its connections stay open and
// nothing is answered. [Server.Resume] lets it go on.
func (s *Server) Pause() {
	s.t.Helper()
	s.must(s.proc.Pause())
}

// Resume ends [Server.Pause].
func (s *Server) Resume() {
	s.t.Helper()
	s.must(s.proc.Resume())
}

// FourLetter returns the answer to a four-letter word, such as ruok, stat or cons.
func (s *Server) FourLetter(word string) string {
	s.t.Helper()
	answer, err := s.fourLetter(word)
	s.must(err)
	return answer
}

// Mntr returns the numbers that the four-letter word mntr reports, fractions cut off.
func (s *Server) Mntr() map[string]int64 {
	s.t.Helper()
	numbers, err := s.mntr()
	s.must(err)
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
// started. Subtract an earlier result to count what happened between.
//
// It is the server's zk_packets_received without the four-letter words that zktest
// itself has asked, which count there too. What counts: every
// request, a Multi as one; the opening of every connection; the closing of every
// session; and each ping, which go-zookeeper sends every third of the
// session timeout, whether or not there is other traffic. So a session's
// requests are counted exactly only over less time than that:
// give the sessions a long timeout, or count with [Proxy.Frames], which tells the
// operations apart. In an ensemble too: its servers start over with every election.
func (s *Server) Requests(t testing.TB) int64 {
	t.Helper()
	n, err := s.requests()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *Server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
