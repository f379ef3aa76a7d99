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

// holderArgument, as the argument of dlock run, makes this program the holder
// process. The next argument is the file descriptor of its socket.
const holderArgument = "holder of dlock run"

// order is a message from dlock to its holder process.
type order struct {
	Signal    syscall.Signal // for the command, or ends the wait
	Delivered bool           // the command already has it, from the terminal
	Ping      bool           // asks for Pong if the lease is valid
}

// notice is a message from the holder process to dlock, with one field set.
type notice struct {
	Say     string
	Granted time.Duration // sent at the grant; margin of the lease
	Started int           // the process id of the command
	Pong    bool          // the lease was valid after the Ping arrived
	Lost    bool          // the holder process is killing the command
	Over    bool          // all processes of the command have ended
	Status  *int          // exit status, sent after the Unlock
}

// supervisor is the process that the user started. One goroutine uses its
// fields, except notices, so they need no mutex.
type supervisor struct {
	settings *runSettings
	stderr   io.Writer
	holder   *os.Process
	socket   *os.File
	orders   *json.Encoder
	notices  chan notice             // closed when the holder process has exited
	exited   chan syscall.WaitStatus // wait status of the holder process
	alone    chan struct{}           // closed when all children have been reaped

	granted bool
	command int // process id of the command; 0 until started
	lost    bool
	status  *int // nil until known

	watch    *time.Ticker // nil unless a command may be running
	margin   time.Duration
	answered time.Time // when the latest answered ping was sent
	sent     time.Time // when the unanswered ping was sent, or zero
	silent   bool      // the last check found the answer overdue

	signals chan os.Signal
	asked   bool // a signal went to the holder process
	killed  int  // exit status if dlock killed the holder process
}

func supervise(r *runSettings, stderr io.Writer) int {
	s := &supervisor{settings: r, stderr: stderr, notices: make(chan notice), signals: make(chan os.Signal, 16), exited: make(chan syscall.WaitStatus, 1), alone: make(chan struct{})}
	signal.Notify(s.signals, forwarded()...)
	defer signal.Stop(s.signals)
	catchBrokenPipes()
	adoptOrphans()
	r.Group = terminalGroup()
	r.ShowsWaits = r.NamesStore || !r.Quiet && isTerminal(os.Stderr)
	err := checkProcesses()
	if err == nil {
		err = s.start()
	}
	if err != nil {
		r.say(stderr, "not run: "+err.Error())
		return cannotWatchStatus
	}
	return s.run()
}

// forwarded returns the signals to pass on to the command. Signals that are
// ignored, such as SIGHUP under nohup, stay ignored.
func forwarded() (all []os.Signal) {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2} {
		if !signal.Ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// catchBrokenPipes makes writes to a closed standard error fail instead of
// killing the process. The command does not inherit this.
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
	// Do not renumber the socket, as ExtraFiles would: the command must inherit
	// the user's open files under their own numbers.
	holder := exec.Command(program, "run", holderArgument, strconv.Itoa(int(its.Fd())))
	holder.Stdin, holder.Stdout, holder.Stderr = os.Stdin, os.Stdout, os.Stderr
	holder.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // keeps the terminal's signals from the holder process
	if err := holder.Start(); err != nil {
		return err
	}
	s.holder = holder.Process
	// As process 1 of a container, dlock also reaps what kubectl exec leaves behind.
	go reap(s.holder.Pid, func(status syscall.WaitStatus) { s.exited <- status }, s.alone)
	_ = s.orders.Encode(s.settings) // fails only if the holder process exited
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

// socketPair returns two connected sockets. The first is closed when this
// process dies, even by a kill; a child process inherits the second.
func socketPair() (ours, its *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "holder"), os.NewFile(uintptr(fds[1]), "dlock"), nil
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
			s.checkHolder()
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

// forward passes a signal on. Before the grant, an interrupt after another signal
// kills the holder process. Programs such as timeout send other signals twice.
func (s *supervisor) forward(sig syscall.Signal) {
	if s.status != nil || s.asked && !s.granted && sig == syscall.SIGINT {
		s.killed = signalBaseStatus + int(sig)
		_ = s.holder.Kill()
		return
	}
	s.asked = true
	_ = s.orders.Encode(order{Signal: sig, Delivered: s.settings.Group != 0 && fromTerminal(sig)})
}

// checkHolder kills the command if an answer is overdue twice. The first time,
// this process may itself have been stopped.
func (s *supervisor) checkHolder() {
	switch {
	case s.sent.IsZero():
		s.sent = time.Now()
		_ = s.orders.Encode(order{Ping: true})
	case time.Since(s.answered) < s.margin/2:
	case !s.silent:
		s.silent = true
	default:
		s.stopWatching()
		killAll(s.holder.Pid, s.command, nil, s.say)
		if !s.lost { // else the holder process exits by itself
			s.say("lost the lock: the process that holds it did not answer for " + time.Since(s.answered).Round(time.Millisecond).String())
			s.lost = true
			_ = s.holder.Kill()
		}
	}
}

func (s *supervisor) say(text string) { s.settings.say(s.stderr, text) }

func (s *supervisor) end() int {
	s.stopWatching()
	exited := <-s.exited
	if s.status != nil {
		return *s.status
	}
	killAll(os.Getpid(), s.command, s.alone, s.say)
	how := "exit status " + strconv.Itoa(exited.ExitStatus())
	if exited.Signaled() {
		how = "signal: " + exited.Signal().String()
	}
	switch {
	case s.killed != 0:
		return s.killed
	case s.lost:
	case s.granted:
		s.say("lost the lock: the process that holds it has ended: " + how)
	default:
		s.say("not run: the process that takes the lock has ended: " + how)
		return storeStatus
	}
	return lostStatus
}

// reap reaps all children, adopted ones too, and closes the given channel when
// none is left. It calls exited when the given child has ended.
func reap(child int, exited func(syscall.WaitStatus), alone chan<- struct{}) {
	defer close(alone)
	for {
		var s syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &s, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return
		case pid == child:
			exited(s)
		}
	}
}

// killAll kills root's descendants or, where they are unknown, the process
// group. It returns when none is left and alone is closed or nil.
func killAll(root, group int, alone <-chan struct{}, say func(string)) {
	var told sync.Once
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		none := alone == nil || isClosed(alone)
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
