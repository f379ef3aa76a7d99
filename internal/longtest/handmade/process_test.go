package handmade

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const bound = 2 * time.Minute

// A process lets a test control a contender in a child process.
type process struct {
	t       testing.TB
	name    string
	cmd     *exec.Cmd
	orders  io.WriteCloser
	answers chan string
}

// start starts a child process, which waits for its first order. It is killed
// when the test ends.
func start(t testing.TB, name string, s setting) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	p := &process{t: t, name: name, cmd: exec.Command(self), answers: make(chan string, 1)}
	p.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.orders, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.answers <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		p.kill()
		for range p.answers { // until the goroutine has read everything
		}
		<-done
	})
	return p
}

func (p *process) order(order string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.orders, order)
	require.NoError(p.t, err)
}

func (p *process) answer() string {
	p.t.Helper()
	select {
	case line, open := <-p.answers:
		require.True(p.t, open, "process %s has ended", p.name)
		p.t.Logf("%s: %s", p.name, line)
		return line
	case <-time.After(bound):
		require.FailNow(p.t, "no answer", "of process %s", p.name)
		return ""
	}
}

func (p *process) do(order string) string {
	p.t.Helper()
	p.order(order)
	return p.answer()
}

func (p *process) lock() int64 {
	p.t.Helper()
	p.order("lock")
	return p.granted()
}

// contend makes the process ask for the lock, and returns once it waits for
// another holder.
func (p *process) contend() {
	p.t.Helper()
	require.Equal(p.t, "waiting", p.do("lock"), "process %s need not wait", p.name)
}

func (p *process) granted() (token int64) {
	p.t.Helper()
	for {
		line := p.answer()
		if line == "waiting" {
			continue
		}
		_, err := fmt.Sscanf(line, "held %d", &token)
		require.NoError(p.t, err, "process %s: %s", p.name, line)
		return token
	}
}

// check returns an error if the process knows that it no longer holds the lock.
func (p *process) check() error {
	p.t.Helper()
	return p.result("check", "holds")
}

func (p *process) unlock() error {
	p.t.Helper()
	return p.result("unlock", "unlocked")
}

func (p *process) result(order, good string) error {
	p.t.Helper()
	if line := p.do(order); line != good {
		return errors.New(line)
	}
	return nil
}

// write makes the process write to the resource, and returns the outcome.
func (p *process) write(r *resource) error {
	p.t.Helper()
	p.order("write")
	return p.deliver(r)
}

// deliver hands an earlier "write" request to the resource, as if it had been
// delayed on the way.
func (p *process) deliver(r *resource) error {
	p.t.Helper()
	var token int64
	var list string
	line := p.answer()
	_, err := fmt.Sscanf(line, "write %d %s", &token, &list)
	require.NoError(p.t, err, line)
	var tokens []int64
	require.NoError(p.t, json.Unmarshal([]byte(list), &tokens), line)
	err = r.write(p.name, token, tokens)
	p.t.Logf("resource: %v", err)
	return err
}

// stopAt makes the process stop whenever its lock reaches the named place.
func (p *process) stopAt(point string) {
	p.t.Helper()
	require.Equal(p.t, "ok", p.do("stop:"+point))
}

func (p *process) at(point string) {
	p.t.Helper()
	line := p.answer()
	for line == "waiting" {
		line = p.answer()
	}
	require.Equal(p.t, "at "+point, line)
}

func (p *process) goOn() {
	p.t.Helper()
	p.order("go on")
}

// pause stops the process, like a pause of its virtual machine.
func (p *process) pause() {
	p.t.Helper()
	p.t.Logf("%s: is stopped", p.name)
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
}

func (p *process) resume() {
	p.t.Helper()
	p.t.Logf("%s: goes on", p.name)
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// kill kills the process, which therefore cannot release its lock.
func (p *process) kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	p.t.Logf("%s: is killed", p.name)
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}
