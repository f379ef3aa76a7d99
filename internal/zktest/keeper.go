package zktest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// keeperScript obeys one order a line and answers each with a line. When its
// input ends, because it was closed or because the test binary is dead, it
// kills the program and removes the directory. It must survive a test binary that no longer
// reads its answers, so it ignores SIGPIPE.
const keeperScript = `
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
	await) wait "$pid" 2>/dev/null; pid=; echo ok ;;
	esac
done
end KILL
rm -rf "$dir"
`

// keeper is the shell process that a server belongs to.
//
// A keeper is safe for use by many goroutines.
type keeper struct {
	cmd *exec.Cmd

	mu      sync.Mutex
	orders  io.WriteCloser
	answers *bufio.Reader
}

// newKeeper returns a keeper that removes dir in the end and can start command.
func newKeeper(dir string, command []string) (*keeper, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", keeperScript, "zktest-keeper", dir}, command...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = ownSession()
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
	return &keeper{cmd: cmd, orders: orders, answers: bufio.NewReader(answers)}, nil
}

// start starts the program and returns its process id.
func (k *keeper) start() (int, error) {
	answer, err := k.order("start")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer)
}

// kill ends the program with SIGKILL, stop with SIGTERM. Both wait until it is dead.
func (k *keeper) kill() error { _, err := k.order("kill"); return err }
func (k *keeper) stop() error { _, err := k.order("stop"); return err }

// await waits until the program has ended by itself.
func (k *keeper) await() error { _, err := k.order("await"); return err }

func (k *keeper) order(order string) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := fmt.Fprintln(k.orders, order); err != nil {
		return "", err
	}
	answer, err := k.answers.ReadString('\n')
	return strings.TrimSpace(answer), err
}

// close kills the program, removes the directory and waits for both.
func (k *keeper) close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orders.Close()
	return k.cmd.Wait()
}
