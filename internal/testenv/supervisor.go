package testenv

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// supervisorScript starts and stops a server on commands from standard input.
// When the input ends, it kills the server and removes the directory. It
// ignores SIGPIPE, because its answers may remain unread.
const supervisorScript = `
trap '' PIPE HUP INT QUIT TERM
dir=$1
shift
pid=
end() {
	[ -n "$pid" ] || return 0
	kill "-$1" "$pid" 2>/dev/null
	kill -CONT "$pid" 2>/dev/null
	wait "$pid" 2>/dev/null
	pid=
}
while read -r order; do
	case $order in
	start)
		(trap - PIPE HUP INT QUIT TERM; exec "$@") </dev/null >>"$dir/log" 2>&1 &
		pid=$!
		echo "$pid" ;;
	kill) end KILL; echo ok ;;
	stop) end TERM; echo ok ;;
	esac
done
end KILL
rm -rf "$dir"
`

// supervisor is a server's parent, a shell. It is safe for concurrent use.
type supervisor struct {
	cmd *exec.Cmd

	mu      sync.Mutex
	orders  io.WriteCloser
	answers *bufio.Reader
}

func newSupervisor(dir string, command []string) (*supervisor, error) {
	args := []string{"-c", supervisorScript, "testenv-supervisor", dir}
	cmd := exec.Command("/bin/sh", append(args, command...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = ownGroup()
	orders, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &supervisor{cmd: cmd, orders: orders, answers: bufio.NewReader(answers)}, nil
}

func (s *supervisor) start() (int, error) {
	answer, err := s.order("start")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer)
}

// kill ends the server with SIGKILL and stop with SIGTERM. Both wait for the
// exit.
func (s *supervisor) kill() error { _, err := s.order("kill"); return err }
func (s *supervisor) stop() error { _, err := s.order("stop"); return err }

func (s *supervisor) order(order string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Fprintln(s.orders, order); err != nil {
		return "", err
	}
	answer, err := s.answers.ReadString('\n')
	return strings.TrimSpace(answer), err
}

func (s *supervisor) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orders.Close()
	return s.cmd.Wait()
}
