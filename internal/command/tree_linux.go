package command

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// adoptOrphans makes this process the parent of descendants whose parent dies.
func adoptOrphans() {
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER, since Linux 3.4
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}

// processes returns the living descendants of root.
func processes(root, _ int) []int {
	entries, _ := os.ReadDir("/proc")
	children := make(map[int][]int)
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if parent, ok := parentOf(e.Name()); ok {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	below := slices.Clone(children[root])
	for i := 0; i < len(below); i++ {
		below = append(below, children[below[i]]...)
	}
	return below
}

// parentOf returns false if the process has ended. If only the first thread of a
// process has ended, its state is that of a zombie, too.
func parentOf(pid string) (parent int, ok bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, false
	}
	// The name, which may contain anything, is in parentheses.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, ppid, threads = 0, 1, 17
	if len(fields) <= threads || bytes.ContainsAny(fields[state], "ZX") && string(fields[threads]) == "1" {
		return 0, false
	}
	parent, err = strconv.Atoi(string(fields[ppid]))
	return parent, err == nil
}

// attributes puts the command into a process group. If dlock and its keeper die
// at once, the kernel kills the command.
func attributes(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// terminalGroup returns the process group of this process if it has a terminal,
// so that the command, in the same group, can read it, and 0 otherwise.
func terminalGroup() int {
	terminal, err := controllingTerminal()
	if err != nil {
		return 0
	}
	_ = syscall.Close(terminal)
	return syscall.Getpgrp()
}

// fromTerminal reports whether the terminal probably sent a signal, and so sent
// it to the whole process group.
func fromTerminal(sig syscall.Signal) bool {
	if sig != syscall.SIGINT && sig != syscall.SIGQUIT {
		return false
	}
	terminal, err := controllingTerminal()
	if err != nil {
		return false
	}
	defer syscall.Close(terminal)
	var foreground int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(terminal), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&foreground)))
	return errno == 0 && int(foreground) == syscall.Getpgrp()
}

func controllingTerminal() (int, error) {
	return syscall.Open("/dev/tty", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
}
