package zktest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// words counts the four-letter words sent to a server. All Server values for
// that server share one words value.
type words struct {
	mu sync.Mutex // held while a four-letter word is unanswered
	// sent is the number of four-letter words sent since startCounting, guarded
	// by mu. The server counts them as packets, so [Server.Requests] subtracts
	// them.
	sent    int64
	ignored int64 // packets received before startCounting; guarded by mu
}

// FourLetter returns the answer to a four-letter word, such as ruok, stat or
// cons.
func (s *Server) FourLetter(word string) string {
	s.T.Helper()
	s.mu.Lock()
	answer, err := s.ask(word, 5*time.Second)
	s.mu.Unlock()
	s.Must(err)
	return answer
}

// poll sends a four-letter word with a short timeout, because a starting server
// may accept a connection without ever answering.
func (s *Server) poll(word string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ask(word, 300*time.Millisecond)
}

// ask sends a four-letter word. It increments s.sent even without an answer,
// because a paused server receives the word later. The caller holds s.mu.
func (s *Server) ask(word string, timeout time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	s.sent++
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = fmt.Errorf("zktest: no answer to %s", word)
	}
	return string(answer), err
}

func (s *Server) mntr() (map[string]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.askMntr()
}

func (s *Server) askMntr() (map[string]int64, error) {
	answer, err := s.ask("mntr", 5*time.Second)
	if err != nil {
		return nil, err
	}
	numbers := make(map[string]int64)
	for lines := bufio.NewScanner(strings.NewReader(answer)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "\t")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			numbers[name] = int64(n)
		}
	}
	if len(numbers) == 0 {
		return nil, fmt.Errorf("zktest: mntr: %w: %s", errNotServing, strings.TrimSpace(answer))
	}
	return numbers, nil
}

// errNotServing means that the answer to the word mntr has no numbers, because
// the server has no quorum.
var errNotServing = errors.New("no numbers")

const packetsReceived = "zk_packets_received"

// startCounting makes Requests count from now on. It succeeds on a server
// without a quorum, because such a server has counted no packets yet.
func (s *Server) startCounting() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	numbers, err := s.askMntr()
	s.sent, s.ignored = 0, numbers[packetsReceived]
	if errors.Is(err, errNotServing) {
		return nil
	}
	return err
}

// Requests returns the number of packets that clients have sent to the server.
// To count the packets of a period, subtract the result at its beginning.
//
// The result is zk_packets_received without the four-letter words sent by this
// package. It includes all requests (a Multi counts as one), new connections,
// the closing of sessions, and pings. go-zookeeper sends a ping every third of
// the session timeout, so use long timeouts for exact counts, or
// [Proxy.Frames], which counts each operation separately. In an ensemble, the
// count starts over after each election.
func (s *Server) Requests(t testing.TB) int64 {
	t.Helper()
	s.mu.Lock()
	numbers, err := s.askMntr()
	requests := numbers[packetsReceived] - s.ignored - s.sent
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return requests
}

// Mntr returns the numbers that the server reports in answer to the four-letter
// word mntr. Fractional parts are dropped.
func (s *Server) Mntr() map[string]int64 {
	s.T.Helper()
	numbers, err := s.mntr()
	s.Must(err)
	return numbers
}

// Watches returns the number of watches on the server.
func (s *Server) Watches() int64 {
	s.T.Helper()
	return s.Mntr()["zk_watch_count"]
}

// Ephemerals returns the number of ephemeral nodes on the server.
func (s *Server) Ephemerals() int64 {
	s.T.Helper()
	return s.Mntr()["zk_ephemerals_count"]
}
