package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// Timeouts for a child's answers, far longer than an idle machine needs.
const (
	answerWithin = 60 * time.Second
	graceTime    = 15 * time.Second // added to the plan's duration, if any
)

// child is a process that runs one competitor. Package work documents the
// protocol by which it is controlled.
type child struct {
	cmd      *exec.Cmd
	commands io.WriteCloser
	answers  chan string // lines of the child's output, then closed
}

func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, answers: make(chan string)}
	var err error
	if c.commands, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
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

func (c *child) ask(command, expected string, within time.Duration) (string, error) {
	if _, err := fmt.Fprintln(c.commands, command); err != nil {
		return "", err
	}
	select {
	case answer, ok := <-c.answers:
		word, rest, _ := strings.Cut(answer, " ")
		switch {
		case !ok:
			return "", errors.New("the child has ended; its standard error may say why")
		case word == expected:
			return rest, nil
		case word == "error":
			return "", errors.New(rest)
		}
		return "", fmt.Errorf("the child answered %q rather than %q", answer, expected)
	case <-time.After(within):
		word, _, _ := strings.Cut(command, " ")
		return "", fmt.Errorf("no answer to %s within %v", word, within)
	}
}

func (c *child) prepare(p work.Plan) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = c.ask("prepare "+string(text), "ready", answerWithin)
	return err
}

func (c *child) measure(p work.Plan) (r work.Report, err error) {
	within := answerWithin
	if p.Kind == work.Loop || p.Kind == work.Try {
		within = time.Duration(p.Millis)*time.Millisecond + graceTime
	}
	text, err := c.ask("go", "report", within)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(text), &r)
}

// stop closes the child's input, and kills the child if it runs on for 5 s.
func (c *child) stop() {
	c.commands.Close()
	timer := time.AfterFunc(5*time.Second, c.kill)
	defer timer.Stop()
	for range c.answers {
	}
	_ = c.cmd.Wait()
}

func (c *child) kill() { _ = c.cmd.Process.Kill() }
