//go:build linux || darwin

package soak

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// member is one place in the crew: a way to the servers, and the worker process that uses it, of which
// another one follows when it was killed.
type member struct {
	name    string
	timeout time.Duration // of its session
	actors  int
	proxies []*zktest.Proxy // one for each server; none for a member that reaches them directly
	addrs   []string
	guard   *guard
	dir     string

	life   int // which process of this member it is
	cmd    *exec.Cmd
	orders io.WriteCloser
	says   chan string
	ended  chan error
}

// start starts the member's process.
func (m *member) start(chroot string, limit int, seed uint64) error {
	m.life++
	s := settings{
		DSN:      fmt.Sprintf("zk://%s%s?session_timeout=%s&sequence_limit=%d", strings.Join(m.addrs, ","), chroot, m.timeout, limit),
		Name:     m.id(),
		Dir:      m.dir,
		Journal:  m.file("journal"),
		Progress: m.file("progress"),
		Log:      m.file("log"),
		Seed:     seed + uint64(m.life),
		Actors:   m.actors,
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	stderr, err := os.Create(m.file("stderr"))
	if err != nil {
		return err
	}
	defer stderr.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text), "GOTRACEBACK=all")
	cmd.Stderr = stderr
	if m.orders, err = cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	m.guard.keep(cmd.Process.Pid)
	m.cmd, m.says, m.ended = cmd, make(chan string, 16), make(chan error, 1)
	go m.attend(stdout)
	return nil
}

// id names the process; several of them may follow each other in one member.
func (m *member) id() string { return fmt.Sprintf("%s-%d", m.name, m.life) }

func (m *member) file(kind string) string { return filepath.Join(m.dir, m.id()+"."+kind) }

// attend listens to the process until its end.
func (m *member) attend(stdout io.Reader) {
	cmd, says, ended := m.cmd, m.says, m.ended
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		says <- lines.Text()
	}
	close(says)
	err := cmd.Wait()
	m.guard.forget(cmd.Process.Pid)
	ended <- err
}

func (m *member) order(order string) error {
	_, err := fmt.Fprintln(m.orders, order)
	return err
}

// hears waits for a line that begins with word and returns the rest of it.
func (m *member) hears(word string) (string, error) {
	select {
	case line, ok := <-m.says:
		rest, found := strings.CutPrefix(line, word+" ")
		if !ok || !found {
			return "", fmt.Errorf("%s said %q and not %s", m.id(), line, word)
		}
		return rest, nil
	case <-time.After(patience):
		return "", fmt.Errorf("%s did not say %s within %v", m.id(), word, patience)
	}
}

func (m *member) signal(s syscall.Signal) error { return m.cmd.Process.Signal(s) }

// kill ends the process as kill -9 does.
func (m *member) kill() error {
	err := m.signal(syscall.SIGKILL)
	<-m.ended
	return err
}

// gained is how many locks the present process has got.
func (m *member) gained() uint64 {
	text, err := os.ReadFile(m.file("progress"))
	if err != nil || len(text) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(text)
}

// dismissed returns how the process ended, which was told to finish.
func (m *member) dismissed() error {
	select {
	case err := <-m.ended:
		return err
	case <-time.After(2 * patience):
		m.signal(syscall.SIGQUIT) // its goroutines are in its stderr then
		select {
		case <-m.ended:
		case <-time.After(10 * time.Second):
			m.kill()
		}
		return fmt.Errorf("did not finish within %v", 2*patience)
	}
}

// stderr is what the process had to say in the end, such as a data race.
func (m *member) stderr() string {
	text, _ := os.ReadFile(m.file("stderr"))
	return strings.TrimSpace(string(text))
}

// heal ends everything that was done to the member's way to the servers.
func (m *member) heal() {
	for _, p := range m.proxies {
		p.Heal()
		p.SetDelay(0)
		p.ForgetFaults()
	}
}
