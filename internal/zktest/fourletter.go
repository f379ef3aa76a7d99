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

// words counts four-letter words, for all Server values of one server.
type words struct {
	mu sync.Mutex // held while a four-letter word is unanswered
	// sent counts words since startCounting, for [Server.Requests] to subtract;
	// guarded by mu.
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

// poll has a short timeout, because a starting server may accept a connection
// without ever answering.
func (s *Server) poll(word string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ask(word, 300*time.Millisecond)
}

// ask counts unanswered words, because a paused server receives them later. The
// caller holds s.mu.
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

// errNotServing means that a server without a quorum has answered mntr.
var errNotServing = errors.New("no numbers")

const packetsReceived = "zk_packets_received"

// startCounting succeeds without a quorum, because such a server has counted
// nothing yet.
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

// Requests returns the number of packets from clients: requests, new
// connections, closed sessions and pings. A Multi counts once, and this
// package's four-letter words do not count. In an ensemble, each election
// resets the count.
//
// go-zookeeper pings every third of the session timeout. For exact counts, use
// long timeouts or [Proxy.Frames].
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
