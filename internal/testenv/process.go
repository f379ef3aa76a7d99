package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ReadyWithin limits how long a server may take to start. It is generous,
// because several test binaries may share a few cores.
const ReadyWithin = 90 * time.Second

// ErrPortTaken means that another program has taken one of the server's ports
// after it was chosen. The caller should retry with other ports.
var ErrPortTaken = errors.New("port taken")

// Process is a server process with its directory. It can be started repeatedly.
//
// Its parent is a small shell process in its own process group, which reads
// from a pipe held by the test binary. When the test binary exits, for whatever
// reason, the pipe breaks, and the shell kills the server and removes its
// directory.
//
// Signals are sent to the server process only, not to its children, so a
// command that is a shell script must exec its program.
//
// A Process is safe for concurrent use.
type Process struct {
	dir        string
	supervisor *supervisor

	mu  sync.Mutex
	pid int // 0 while the server is down
}

// NewProcess returns a process that [Process.Start] starts with command. Its
// output goes to a file in dir, which must exist and is removed by
// [Process.Close].
func NewProcess(dir string, command []string) (*Process, error) {
	supervisor, err := newSupervisor(dir, command)
	if err != nil {
		return nil, err
	}
	return &Process{dir: dir, supervisor: supervisor}, nil
}

// Dir returns the server's directory.
func (p *Process) Dir() string { return p.dir }

// Startup tells [Process.Start] how to find out whether a server is ready, or
// why it won't be.
type Startup struct {
	// Ready reports whether the started server answers, and not another
	// server on the same port.
	Ready func() bool
	// PortTaken reports whether the log says that a port was taken.
	PortTaken func(log string) bool
	// Exiting reports whether the log says that the server is about to exit.
	Exiting func(log string) bool
}

// Start starts the server and waits until it is ready, but at most
// [ReadyWithin]. After an error the server is down. The error matches
// [ErrPortTaken] if the caller should retry with other ports.
func (p *Process) Start(s Startup) error {
	logged := len(p.Log(0))
	pid, err := p.supervisor.start()
	if err != nil {
		return err
	}
	p.setPid(pid)
	deadline := time.Now().Add(ReadyWithin)
	for !s.Ready() {
		if err := p.startError(s, logged, deadline); err != nil {
			return errors.Join(err, p.Kill())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// startError returns the reason why a server will not become ready, or nil if
// it may. It ignores the part of the log before the offset logged. If the
// server is exiting, startError first waits for the exit, because the log may
// be incomplete until then.
func (p *Process) startError(s Startup, logged int, deadline time.Time) error {
	log := p.Log(logged)
	if s.PortTaken(log) {
		return ErrPortTaken
	}
	if s.Exiting(log) {
		if err := p.supervisor.await(); err != nil {
			return err
		}
		if log = p.Log(logged); s.PortTaken(log) {
			return ErrPortTaken
		}
		return fmt.Errorf("testenv: the server did not start:\n%s", log)
	}
	if time.Now().After(deadline) {
		return fmt.Errorf("testenv: the server was not ready within %v:\n%s", ReadyWithin, log)
	}
	return nil
}

// Log returns the server's output since its first start, from the given offset.
func (p *Process) Log(offset int) string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text[min(offset, len(text)):])
}

// Kill kills the server with SIGKILL and waits for it to exit. Its directory is
// kept.
func (p *Process) Kill() error {
	p.setPid(0)
	return p.supervisor.kill()
}

// Stop stops the server with SIGTERM and waits for it to exit. Its directory is
// kept.
func (p *Process) Stop() error {
	p.setPid(0)
	return p.supervisor.stop()
}

// Pause stops the server with SIGSTOP and waits until all its threads have
// stopped. Its connections stay open.
func (p *Process) Pause() error { return p.signal(pause) }

// Resume ends [Process.Pause].
func (p *Process) Resume() error { return p.signal(resume) }

// Down reports whether the server has not been started, or was ended by
// [Process.Kill] or [Process.Stop].
func (p *Process) Down() bool { return p.Pid() == 0 }

// Pid returns the server's process ID, or 0 while it is down.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// SupervisorPid returns the process ID of the server's parent.
func (p *Process) SupervisorPid() int { return p.supervisor.cmd.Process.Pid }

// Close kills the server, removes its directory, and waits for both.
func (p *Process) Close() error { return p.supervisor.close() }

func (p *Process) setPid(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *Process) signal(send func(pid int) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return errors.New("testenv: the server is down")
	}
	return send(p.pid)
}
