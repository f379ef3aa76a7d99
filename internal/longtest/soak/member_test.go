//go:build linux || darwin

package soak

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
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

// member is a team position, in which a new process replaces a killed one.
type member struct {
	name    string
	timeout time.Duration // session timeout
	actors  int
	proxies []*zktest.Proxy // one per server; none if connected directly
	addrs   []string
	dir     string

	life   int // number of the current process, from 1
	cmd    *exec.Cmd
	orders io.WriteCloser
	output chan string
	ended  chan error
}

func (m *member) start(chroot string, limit int, seed uint64) error {
	m.life++
	s := settings{
		DSN:    fmt.Sprintf("zk://%s%s?session_timeout=%s&sequence_limit=%d", strings.Join(m.addrs, ","), chroot, m.timeout, limit),
		Name:   m.id(),
		Dir:    m.dir,
		Seed:   seed + uint64(m.life),
		Actors: m.actors,
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
	// A stopped worker ends with the test binary, because its orphaned group
	// gets SIGHUP.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
	m.cmd, m.output, m.ended = cmd, make(chan string, 16), make(chan error, 1)
	go m.readOutput(stdout)
	return nil
}

func (m *member) id() string { return fmt.Sprintf("%s-%d", m.name, m.life) }

func (m *member) file(kind string) string { return filepath.Join(m.dir, m.id()+"."+kind) }

func (m *member) readOutput(stdout io.Reader) {
	cmd, output, ended := m.cmd, m.output, m.ended
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		output <- lines.Text()
	}
	close(output)
	err := cmd.Wait()
	ended <- err
}

func (m *member) order(order string) error {
	_, err := fmt.Fprintln(m.orders, order)
	return err
}

var (
	errNotSaid     = errors.New("did not say")
	errNotFinished = errors.New("did not finish")
)

func (m *member) awaitLine(word string) (string, error) {
	select {
	case line, ok := <-m.output:
		rest, found := strings.CutPrefix(line, word+" ")
		if !ok || !found {
			return "", fmt.Errorf("%s said %q and not %s", m.id(), line, word)
		}
		return rest, nil
	case <-time.After(waitLimit):
		return "", fmt.Errorf("%s %w %s within %v", m.id(), errNotSaid, word, waitLimit)
	}
}

func (m *member) signal(s syscall.Signal) error { return m.cmd.Process.Signal(s) }

func (m *member) kill() error {
	err := m.signal(syscall.SIGKILL)
	<-m.ended
	return err
}

func (m *member) acquired() uint64 {
	text, err := os.ReadFile(progressFile(m.dir, m.id()))
	if err != nil || len(text) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(text)
}

func (m *member) awaitEnd() error {
	select {
	case err := <-m.ended:
		return err
	case <-time.After(2 * waitLimit):
		m.signal(syscall.SIGQUIT) // dumps the goroutines
		select {
		case <-m.ended:
		case <-time.After(10 * time.Second):
			m.kill()
		}
		return fmt.Errorf("%w within %v", errNotFinished, 2*waitLimit)
	}
}

func (m *member) stderr() string {
	text, _ := os.ReadFile(m.file("stderr"))
	return strings.TrimSpace(string(text))
}

func (m *member) heal() {
	for _, p := range m.proxies {
		p.Heal()
		p.SetDelay(0)
		p.ForgetFaults()
	}
}
