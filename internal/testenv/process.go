package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ReadyWithin limits how long a server may take to start. It is generous,
// because several test binaries may share a few cores.
const ReadyWithin = 90 * time.Second

// ErrPortTaken means that another program has taken a port that was chosen for
// the server.
var ErrPortTaken = errors.New("port taken")

// process is a server with its directory, safe for concurrent use. It may
// outlive a test. Its supervisor cleans up after the test binary.
type process struct {
	store      *Store
	dir        string
	ports      []int
	ready      func() bool
	names      atomic.Int64
	supervisor *supervisor // nil until configured

	mu     sync.Mutex
	pid    int       // 0 while the server is down
	began  time.Time // latest start
	logged int       // length of the log when that start began
}

func (p *process) asUser(command []string) []string {
	if p.store.User == "" || os.Getuid() != 0 {
		return command
	}
	return append([]string{"setpriv", "--reuid=" + p.store.User, "--regid=" + p.store.User, "--clear-groups", "--"}, command...)
}

func (p *process) own() error {
	if p.store.User == "" || os.Getuid() != 0 {
		return nil
	}
	return exec.Command("chown", "-R", p.store.User+":"+p.store.User, p.dir).Run()
}

// launch leaves the server down after an error. ErrPortTaken means that a retry
// may succeed.
func (p *process) launch() error {
	time.Sleep(time.Until(p.began.Add(p.store.Apart)))
	logged := len(p.log(0))
	pid, err := p.supervisor.start()
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.pid, p.began, p.logged = pid, time.Now(), logged
	p.mu.Unlock()
	for deadline := time.Now().Add(ReadyWithin); !p.ready(); time.Sleep(10 * time.Millisecond) {
		if err := p.startError(deadline); err != nil {
			return errors.Join(err, p.kill())
		}
	}
	return nil
}

func (p *process) startError(deadline time.Time) error {
	exited := !running(p.Pid()) // first, because an exit completes the log
	log := p.Log()
	switch text := strings.ToLower(log); {
	case strings.Contains(text, "address already in use") || strings.Contains(text, "bindexception"):
		return ErrPortTaken
	case exited:
		return fmt.Errorf("testenv: the server did not start:\n%s", log)
	case time.Now().After(deadline):
		return fmt.Errorf("testenv: the server was not ready within %v:\n%s", ReadyWithin, log)
	}
	return nil
}

// restart retries, because other processes that look for free ports hold them
// only briefly.
func (p *process) restart() (err error) {
	if err = p.kill(); err != nil {
		return err
	}
	for range 5 {
		if err = p.launch(); !errors.Is(err, ErrPortTaken) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

// Log returns the server's output since its latest start.
func (p *process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log(p.logged)
}

func (p *process) log(offset int) string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text[min(offset, len(text)):])
}

// kill pauses the server first, so that no child is started.
func (p *process) kill() error {
	_ = p.signal(pause) // fails if the server has exited
	rest := children(p.Pid())
	p.setPid(0)
	return errors.Join(p.supervisor.kill(), killAll(rest))
}

func (p *process) stop() error {
	p.setPid(0)
	return p.supervisor.stop()
}

// Down reports whether the test has killed or stopped the server, or not
// started it yet.
func (p *process) Down() bool { return p.Pid() == 0 }

// Pid returns the server's process ID, or 0 while it is down.
func (p *process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

func (p *process) setPid(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *process) close() error {
	if p.supervisor == nil {
		return os.RemoveAll(p.dir)
	}
	if rest := children(p.Pid()); len(rest) > 0 {
		return errors.Join(p.kill(), p.supervisor.close())
	}
	return p.supervisor.close()
}

func (p *process) signal(send func(pid int) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return errors.New("testenv: the server is down")
	}
	if err := send(p.pid); err != nil {
		return err
	}
	for _, child := range children(p.pid) {
		if err := send(child); err != nil && running(child) {
			return err
		}
	}
	return nil
}
