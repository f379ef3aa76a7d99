package zktest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

func (p *process) fourLetter(word string) (string, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	return p.ask(word, 5*time.Second)
}

// poll sends a four-letter word like fourLetter, but with a short timeout,
// because a starting server may accept a connection without ever answering.
func (p *process) poll(word string) (string, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	return p.ask(word, 300*time.Millisecond)
}

// ask sends a four-letter word and returns the answer. It increments
// p.wordsSent even if no answer arrives, because a paused server receives the
// word when it resumes. The caller holds p.asking.
func (p *process) ask(word string, timeout time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", testenv.Loopback(p.port), timeout)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	p.wordsSent++
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = fmt.Errorf("zktest: no answer to %s", word)
	}
	return string(answer), err
}

func (p *process) mntr() (map[string]int64, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	return p.askMntr()
}

func (p *process) askMntr() (map[string]int64, error) {
	answer, err := p.ask("mntr", 5*time.Second)
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

// startCounting makes p.requests count from now on. It is called when the
// server is ready. A server without a quorum has counted no packets yet.
func (p *process) startCounting() error {
	p.asking.Lock()
	defer p.asking.Unlock()
	numbers, err := p.askMntr()
	p.wordsSent, p.ignored = 0, numbers[packetsReceived]
	if errors.Is(err, errNotServing) {
		return nil
	}
	return err
}

const packetsReceived = "zk_packets_received"

func (p *process) requests() (int64, error) {
	p.asking.Lock()
	defer p.asking.Unlock()
	numbers, err := p.askMntr()
	return numbers[packetsReceived] - p.ignored - p.wordsSent, err
}
