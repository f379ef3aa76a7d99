package delay

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer sleeps with higher precision than the runtime's timers, which are
// rounded to milliseconds in an idle Go program on Linux. It uses a kernel
// timer, which is a file that becomes readable at the set time. Only one
// goroutine may use a timer.
type timer struct {
	fd   int // of file
	file *os.File
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &timer{fd: fd, file: os.NewFile(uintptr(fd), "timer")}, nil
}

// sleepUntil never returns early.
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
