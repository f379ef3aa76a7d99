//go:build linux || darwin

package soak

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guardScript kills the workers when the test binary dies, which closes the
// script's input. It finds even stopped ones, which cannot notice that by
// themselves.
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
