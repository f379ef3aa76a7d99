//go:build unix && !linux

package command

import "syscall"

func adoptOrphans() {}

func checkProcesses() error { return nil }

// processes returns the process group as a negative number, as kill expects.
func processes(_, group int) []int {
	if group == 0 || syscall.Kill(-group, 0) != nil {
		return nil
	}
	return []int{-group}
}

func attributes(int) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// terminalGroup returns 0, because the command needs its own process group, by
// which dlock finds its processes.
func terminalGroup() int { return 0 }

func fromTerminal(syscall.Signal) bool { return false }
