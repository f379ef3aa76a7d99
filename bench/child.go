package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// answerWithin bounds a step of a round, graceTime one that ends by itself after a set time: far more than
// any takes on an idle machine.
const (
	answerWithin = 60 * time.Second
	graceTime    = 15 * time.Second
)

// child is the process in which a competitor works.
type child struct {
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers chan string // closed at the end of the child's output
	trouble tail
	wait    func() error // for the end of the process and of its output
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, answers: make(chan string)}
	var err error
	if c.orders, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = &c.trouble
	c.wait = sync.OnceValue(cmd.Wait)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.answers)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			c.answers <- strings.TrimSuffix(line, "\n")
		}
	}()
	return c, nil
}

// order sends a line and returns what follows the expected word of the answer.
func (c *child) order(line, expected string, within time.Duration) (string, error) {
	if _, err := fmt.Fprintln(c.orders, line); err != nil {
		return "", c.explain(err)
	}
	select {
	case answer, ok := <-c.answers:
		word, rest, _ := strings.Cut(answer, " ")
		switch {
		case !ok:
			_ = c.wait() // so that all of its last words are here
			return "", c.explain(errors.New("the child has ended"))
		case word == expected:
			return rest, nil
		case word == "error":
			return "", errors.New(rest)
		}
		return "", fmt.Errorf("%q in place of %q", answer, expected)
	case <-time.After(within):
		word, _, _ := strings.Cut(line, " ")
		return "", c.explain(fmt.Errorf("no answer to %s within %v", word, within))
	}
}

func (c *child) explain(err error) error {
	if said := c.trouble.String(); said != "" {
		return fmt.Errorf("%w; it said: %s", err, said)
	}
	return err
}

func (c *child) prepare(p work.Plan) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = c.order("prepare "+string(text), "ready", answerWithin)
	return err
}

func (c *child) measure(p work.Plan) (r work.Report, err error) {
	within := answerWithin
	if p.Kind == work.Loop || p.Kind == work.Try {
		within = time.Duration(p.Millis)*time.Millisecond + graceTime
	}
	text, err := c.order("go", "report", within)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(text), &r)
}

func (c *child) end() error {
	_, err := c.order("end", "ended", answerWithin)
	return err
}

// stop has the child exit, and kills it if it does not.
func (c *child) stop() {
	c.orders.Close()
	timer := time.AfterFunc(5*time.Second, c.kill)
	defer timer.Stop()
	for range c.answers {
	}
	_ = c.wait() // whatever its status: it was asked to go
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }

// tail keeps the end of what was written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-most):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.text))
}
