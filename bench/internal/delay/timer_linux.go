package delay

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer lets one goroutine sleep. Timers of the Go runtime are too coarse for this
// package: on Linux, an idle Go program waits for its next timer in whole
// milliseconds. A timer of the kernel is a file that can be read at the set time. The
// runtime wakes a goroutine that reads such a file without delay.
type timer struct {
	fd   int // the file descriptor of file; it is closed by closing file
	file *os.File
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &timer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

// sleepUntil returns at the given time, never earlier.
func (t *timer) sleepUntil(at time.Time) error {
	rest := time.Until(at)
	if rest <= 0 {
		return nil
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(rest.Nanoseconds())}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		return os.NewSyscallError("timerfd_settime", err)
	}
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err
}

func (t *timer) close() { t.file.Close() }
