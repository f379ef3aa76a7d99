//go:build linux || darwin

package soak

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guardScript kills the workers when its standard input closes, which happens
// when the test binary dies. It also kills workers stopped by SIGSTOP, which
// cannot notice the end of their own input.
const guardScript = `
trap '' PIPE HUP INT QUIT TERM
pids=' '
while read -r order pid; do
	case $order in
	watch) pids="$pids$pid " ;;
	forget) pids="${pids%% "$pid" *} ${pids#* "$pid" }" ;;
	esac
done
[ "$pids" = ' ' ] || kill -KILL $pids 2>/dev/null
`

type guard struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
}

func newGuard() (*guard, error) {
	g := &guard{cmd: exec.Command("/bin/sh", "-c", guardScript)}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if g.orders, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return g, g.cmd.Start()
}

func (g *guard) watch(pid int)  { fmt.Fprintln(g.orders, "watch", pid) }
func (g *guard) forget(pid int) { fmt.Fprintln(g.orders, "forget", pid) }

func (g *guard) close() {
	g.orders.Close()
	g.cmd.Wait()
}
