package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ReadyWithin bounds the start of one server. A start takes far longer than
// usual if several test binaries share few cores.
const ReadyWithin = 90 * time.Second

// ErrPortTaken says that another program took one of the server's ports after
// the port was chosen and before the server used it. Another try with other
// ports helps.
var ErrPortTaken = errors.New("port taken")

// Process is one server: its command, its directory and, while the server is
// up, its process.
//
// The parent of the server's process is a small shell process in a session of
// its own, which reads from a pipe of the test binary. When the test binary
// ends, by whatever signal, the pipe ends too. Then the shell kills the server
// and removes its directory.
//
// Signals go to the server's own process, and not to processes that it starts. So
// a command that is a shell script has to exec its program.
//
// A Process is safe for use by many goroutines.
type Process struct {
	dir        string
	supervisor *supervisor

	mu  sync.Mutex
	pid int // 0 while the server is down
}

// NewProcess returns a server that is down. [Process.Start] starts it with
// command. The directory dir must exist. The server's output goes to a file in
// dir, and [Process.Close] removes dir.
func NewProcess(dir string, command []string) (*Process, error) {
	supervisor, err := newSupervisor(dir, command)
	if err != nil {
		return nil, err
	}
	return &Process{dir: dir, supervisor: supervisor}, nil
}

// Dir returns the directory of the server.
func (p *Process) Dir() string { return p.dir }

// Startup holds the functions by which [Process.Start] finds out whether a
// server that it has started gets ready, or why it does not.
type Startup struct {
	// Ready reports whether this very server answers, and not another one that
	// has its port.
	Ready func() bool
	// PortTaken reports whether the log says that another program has one of the ports.
	PortTaken func(log string) bool
	// Exiting reports whether the log says that the server is about to exit.
	Exiting func(log string) bool
}

// Start starts the server and waits until it is ready, for [ReadyWithin] at
// most. After an error the server is down. The error matches [ErrPortTaken] if
// another try with other ports would help.
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

// startError returns why the server will not get ready, or nil. It reads what
// the server has logged since its start, which begins at offset logged.
//
// If the log says that the server is about to exit, startError waits until the
// process has ended, and only then looks for the reason: before, the log may
// end in the middle of a message.
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

// Log returns what the server has written to standard output and standard error
// since its first start, from an offset on. A log that cannot be read counts as
// empty.
func (p *Process) Log(offset int) string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text[min(offset, len(text)):])
}

// Kill ends the server with SIGKILL and waits until it is dead. Its directory stays.
func (p *Process) Kill() error {
	p.setPid(0)
	return p.supervisor.kill()
}

// Stop ends the server with SIGTERM and waits until it is dead. Its directory stays.
func (p *Process) Stop() error {
	p.setPid(0)
	return p.supervisor.stop()
}

// Pause stops the server with SIGSTOP: its connections stay open, and it does
// nothing. Pause returns once every thread of the server has stopped.
func (p *Process) Pause() error { return p.signal(pause) }

// Resume ends [Process.Pause].
func (p *Process) Resume() error { return p.signal(resume) }

// Down reports whether the server has not been started, or has been ended by
// [Process.Kill] or [Process.Stop].
func (p *Process) Down() bool { return p.Pid() == 0 }

// Pid returns the id of the server's process, or 0 while the server is down.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// SupervisorPid returns the id of the shell process that is the parent of the server.
func (p *Process) SupervisorPid() int { return p.supervisor.cmd.Process.Pid }

// Close kills the server, removes its directory and waits for both.
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
