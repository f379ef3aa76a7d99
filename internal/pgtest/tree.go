package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// tree is a running server: its first process, and the child processes that
// serve clients.
type tree struct {
	*testenv.Process
	addr string
}

// Kill kills all processes of the server with SIGKILL and waits until the port
// is closed. It pauses the parent first, so that it starts no more children.
func (t tree) Kill() error {
	_ = t.Process.Pause() // fails if the process has ended
	rest := children(t.Pid())
	return errors.Join(t.Process.Kill(), signal(rest, syscall.SIGKILL), t.awaitSilence())
}

func (t tree) Close() error {
	if t.Down() {
		return t.Process.Close()
	}
	return errors.Join(t.Kill(), t.Process.Close())
}

func (t tree) Pause() error {
	return errors.Join(t.Process.Pause(), signal(children(t.Pid()), sigStop))
}

// Resume ends Pause.
func (t tree) Resume() error {
	return errors.Join(t.Process.Resume(), signal(children(t.Pid()), sigContinue))
}

func signal(pids []int, sig syscall.Signal) (err error) {
	for _, pid := range pids {
		if e := send(pid, sig); !errors.Is(e, syscall.ESRCH) { // it has ended
			err = errors.Join(err, e)
		}
	}
	return err
}

// children returns the child processes of pid. For a server that is down, whose
// pid is 0, it returns none, although processes in a container may have the
// parent 0.
func children(pid int) (found []int) {
	if pid <= 0 {
		return nil
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		_, rest, ok := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if err != nil || !ok || len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil {
			found = append(found, child)
		}
	}
	return found
}

// awaitSilence waits until no process listens on the server's port.
func (t tree) awaitSilence() error {
	for end := time.Now().Add(testenv.ReadyWithin); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", t.addr, time.Second)
		if err != nil {
			return nil
		}
		_ = conn.Close()
	}
	return fmt.Errorf("the server was killed, but %s is still open", t.addr)
}
