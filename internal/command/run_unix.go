//go:build unix

package command

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// keeperArgument makes the program the keeper of a dlock run. The number of its
// socket follows.
const keeperArgument = "keeper of dlock run"

// order is a message to the keeper.
type order struct {
	Signal    syscall.Signal // to pass on, or to end the wait
	Delivered bool           // the terminal has sent Signal to the command already
	Ping      bool           // asks for a Pong
}

// notice is a message of the keeper. Each has one of its fields.
type notice struct {
	Say     string
	Granted time.Duration // the lock is granted; the margin of its lease
	Started int           // the process id of the command
	Pong    bool          // the lease was running after the Ping
	Lost    bool          // the lock is lost, and the keeper ends the command
	Over    bool          // no process of the command is left
	Status  *int          // the exit status; the lock is released
}

// supervisor is the process dlock of a dlock run. It runs on one goroutine.
type supervisor struct {
	settings *runSettings
	stderr   io.Writer
	keeper   *exec.Cmd
	socket   *os.File
	orders   *json.Encoder
	notices  chan notice // closed when the keeper has gone

	granted bool
	command int // process id; 0 until started
	lost    bool
	status  *int // nil until known

	watch    *time.Ticker // of the pings; nil unless a command may run
	margin   time.Duration
	answered time.Time // when the latest ping that was answered was sent
	sent     time.Time // when the ping in flight was sent; zero if there is none
	silent   bool      // whether the answer is overdue

	signals chan os.Signal
	asked   bool // whether a signal was sent to the keeper
	killed  int  // exit status after a signal for which the keeper was killed; 0: none
}

// supervise runs the command by a keeper, and returns the exit status.
func supervise(r *runSettings, stderr io.Writer) int {
	s := &supervisor{settings: r, stderr: stderr, notices: make(chan notice), signals: make(chan os.Signal, 16)}
	signal.Notify(s.signals, forwarded()...)
	defer signal.Stop(s.signals)
	catchBrokenPipes()
	adoptOrphans()
	r.Group = terminalGroup()
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		r.ShowsWaits = true
	}
	if err := s.start(); err != nil {
		r.say(stderr, "not run: "+err.Error())
		return cannotRunStatus
	}
	return s.run()
}

// forwarded returns the signals to pass on to the command. Those that are
// ignored, as SIGHUP is under nohup, stay ignored.
func forwarded() (all []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// catchBrokenPipes makes writes to a closed standard error fail instead of
// killing the process. The command does not inherit that.
func catchBrokenPipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

func (s *supervisor) start() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	ours, its, err := socketPair()
	if err != nil {
		return err
	}
	defer its.Close()
	s.socket, s.orders = ours, json.NewEncoder(ours)
	// The socket keeps its number, so that the command inherits the open files
	// of this process under theirs.
	s.keeper = exec.Command(program, "run", keeperArgument, strconv.Itoa(int(its.Fd())))
	s.keeper.Stdin, s.keeper.Stdout, s.keeper.Stderr = os.Stdin, os.Stdout, os.Stderr
	s.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // out of reach of the terminal
	if err := s.keeper.Start(); err != nil {
		return err
	}
	_ = s.orders.Encode(s.settings) // if it fails, the keeper has gone
	go func() {
		defer close(s.notices)
		lines := json.NewDecoder(ours)
		for {
			var n notice
			if lines.Decode(&n) != nil {
				return
			}
			s.notices <- n
		}
	}()
	return nil
}

// socketPair returns a socket that closes when this process dies, and its other
// end, which a child inherits.
func socketPair() (ours, its *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "keeper"), os.NewFile(uintptr(fds[1]), "dlock"), nil
}

func (s *supervisor) run() int {
	for {
		var ticks <-chan time.Time
		if s.watch != nil {
			ticks = s.watch.C
		}
		select {
		case n, ok := <-s.notices:
			if !ok {
				return s.end()
			}
			s.take(n)
		case sig := <-s.signals:
			s.forward(sig.(syscall.Signal))
		case <-ticks:
			s.checkKeeper()
		}
	}
}

func (s *supervisor) take(n notice) {
	switch {
	case n.Say != "":
		s.settings.say(s.stderr, n.Say)
	case n.Granted > 0:
		s.granted, s.margin, s.answered = true, n.Granted, time.Now()
		s.watch = time.NewTicker(max(s.margin/8, 1))
	case n.Started > 0:
		s.command = n.Started
	case n.Pong:
		s.answered, s.sent, s.silent = s.sent, time.Time{}, false
	case n.Lost:
		s.lost = true
	case n.Over:
		s.stopWatching()
	case n.Status != nil:
		s.status = n.Status
	}
}

func (s *supervisor) stopWatching() {
	if s.watch != nil {
		s.watch.Stop()
		s.watch = nil
	}
}

// forward passes a signal on. While the keeper takes the lock, the signal ends
// that, and a second interrupt does not wait for it. Other signals do, because
// programs such as timeout send them twice. A signal that comes while the keeper
// closes its session does not wait either.
func (s *supervisor) forward(sig syscall.Signal) {
	if s.status != nil || s.asked && !s.granted && sig == syscall.SIGINT {
		s.killed = signalBaseStatus + int(sig)
		_ = s.keeper.Process.Kill()
		return
	}
	s.asked = true
	_ = s.orders.Encode(order{Signal: sig, Delivered: s.settings.Group != 0 && fromTerminal(sig)})
}

// checkKeeper asks the keeper whether the lease is running, and kills the
// command if there was no answer for too long. If this process itself was
// stopped, the answer may have come meanwhile, so it waits for another tick.
func (s *supervisor) checkKeeper() {
	switch {
	case s.sent.IsZero():
		s.sent = time.Now()
		_ = s.orders.Encode(order{Ping: true})
	case time.Since(s.answered) < s.margin/2:
	case !s.silent:
		s.silent = true
	default:
		s.stopWatching()
		keeper := s.keeper.Process
		killAll(keeper.Pid, s.command, func() bool { return true }, s.say)
		if !s.lost { // else the keeper is about to end by itself
			s.say("lost the lock: the process that holds it did not answer for " + time.Since(s.answered).Round(time.Millisecond).String())
			s.lost = true
			_ = keeper.Kill()
		}
	}
}

func (s *supervisor) say(text string) { s.settings.say(s.stderr, text) }

// end is called when the keeper has gone, and returns the exit status.
func (s *supervisor) end() int {
	s.stopWatching()
	err := s.keeper.Wait()
	if s.status != nil {
		return *s.status
	}
	killAll(os.Getpid(), s.command, reapOne, s.say)
	switch {
	case s.killed != 0:
		return s.killed
	case s.lost:
	case s.granted:
		s.say("lost the lock: the process that holds it has ended: " + err.Error())
	default:
		s.say("not run: the process that takes the lock has ended: " + err.Error())
		return storeStatus
	}
	return lostStatus
}

// reapOne reaps children that have ended. It returns whether none is left.
func reapOne() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return true
		case pid == 0:
			return false
		}
	}
}

// killAll kills the processes below root, where the system can list them, and
// otherwise the process group, until none is left. alone reports whether root
// has no children any more.
func killAll(root, group int, alone func() bool, say func(string)) {
	var told sync.Once
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		none := alone()
		all := processes(root, group)
		if none && len(all) == 0 {
			return
		}
		for _, pid := range all {
			if err := syscall.Kill(pid, syscall.SIGKILL); err == syscall.EPERM {
				told.Do(func() { say("waits for process " + strconv.Itoa(pid) + ", which it may not kill") })
			}
		}
		time.Sleep(pause)
	}
}
