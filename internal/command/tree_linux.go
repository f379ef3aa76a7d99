package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// adoptOrphans makes this process the parent of its descendants whose own
// parent dies, so that it can find and reap them.
func adoptOrphans() {
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER, since Linux 3.4
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}

// checkProcesses returns an error if /proc is missing or belongs to another PID
// namespace. The function processes would then find unrelated processes.
func checkProcesses() error {
	self, err := os.Readlink("/proc/self")
	if err == nil && self != strconv.Itoa(os.Getpid()) {
		err = errors.New("it belongs to another PID namespace")
	}
	if err != nil {
		return fmt.Errorf("the processes of the command could not be found in /proc: %w: mount it, as unshare --mount-proc and bwrap --proc /proc do", err)
	}
	return nil
}

// processes returns the ids of the living descendants of root.
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

// parentOf returns false if the process has ended. A zombie may still have
// threads, because only its first thread has ended.
func parentOf(pid string) (parent int, ok bool) {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, false
	}
	// The program's name, in parentheses, may contain parentheses.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const state, ppid, threads = 0, 1, 17
	if len(fields) <= threads || bytes.ContainsAny(fields[state], "ZX") && string(fields[threads]) == "1" {
		return 0, false
	}
	parent, err = strconv.Atoi(string(fields[ppid]))
	return parent, err == nil
}

// attributes lets the kernel kill the command with the holder process, in case
// dlock dies at the same time.
func attributes(group int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pgid: group, Pdeathsig: syscall.SIGKILL}
}

// terminalGroup returns this process's group, in which the command can read
// from the terminal, or 0 without a terminal.
func terminalGroup() int {
	terminal, err := controllingTerminal()
	if err != nil {
		return 0
	}
	_ = syscall.Close(terminal)
	return syscall.Getpgrp()
}

// fromTerminal reports whether a signal probably came from the terminal, which
// sends it to the whole process group.
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
