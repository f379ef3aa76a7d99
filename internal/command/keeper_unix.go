//go:build unix

package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// Environment variables that describe the lock to the command run under it.
const (
	lockVariable  = "DLOCK_LOCK"
	nodeVariable  = "DLOCK_NODE"
	tokenVariable = "DLOCK_TOKEN"
)

const (
	// longestMargin is the upper limit for keeper.margin, so that the times
	// derived from it stay short even if the session timeout is very long.
	longestMargin = 20 * time.Second
	// sayAfter is how long dlock run waits before it tells the user what it
	// waits for.
	sayAfter = time.Second
	// closeFor limits how long closing the session may take.
	closeFor = 5 * time.Second
)

// keeper is the state of the child process in which dlock run holds the lock
// and runs the command.
type keeper struct {
	settings runSettings
	socket   *os.File
	client   *dlock.Client
	margin   time.Duration // set before the command starts

	ctx      context.Context // done after a signal while no command runs, or after dlock has died
	cancel   context.CancelCauseFunc
	orphaned chan struct{} // closed when dlock has died
	exited   chan syscall.WaitStatus
	alone    chan struct{} // closed when the command, and on Linux all its descendants, have been reaped

	session   atomic.Pointer[driver.SessionInfo] // the latest session
	lastError atomic.Pointer[error]              // error of the latest attempt to connect
	lock      atomic.Pointer[dlock.Lock]         // nil until granted

	mu      sync.Mutex
	command int // guarded by mu; process id while the command runs, else 0
	group   int // process id of the command, and its process group unless settings.Group is set

	sending sync.Mutex
	notices *json.Encoder // guarded by sending
}

// interrupted is the cancellation cause of k.ctx after a signal that came while
// no command was running.
type interrupted syscall.Signal

func (s interrupted) Error() string { return syscall.Signal(s).String() }

// errOrphaned is the cancellation cause of k.ctx after dlock, the parent process,
// has died.
var errOrphaned = errors.New("dlock has died")

// keep is the main function of the keeper process. socket is the file
// descriptor of its socket.
func keep(socket string) int {
	// Keep this thread alive: the kernel kills the command when the thread that
	// started it ends.
	runtime.LockOSThread()
	signal.Notify(make(chan os.Signal, 1), forwarded()...) // caught and dropped: dlock passes on those meant for the command
	catchBrokenPipes()
	adoptOrphans()
	fd, err := strconv.Atoi(socket)
	if err != nil {
		return usageStatus
	}
	syscall.CloseOnExec(fd)
	k := &keeper{socket: os.NewFile(uintptr(fd), "dlock"), orphaned: make(chan struct{}), exited: make(chan syscall.WaitStatus, 1), alone: make(chan struct{})}
	k.notices = json.NewEncoder(k.socket)
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	orders := json.NewDecoder(k.socket)
	if err := orders.Decode(&k.settings); err != nil {
		return usageStatus // dlock has died
	}
	go k.listen(orders)
	log.SetFlags(0)
	log.SetOutput(k) // for warnings that a driver writes to slog.Default
	status := k.run()
	k.send(notice{Status: &status})
	k.close()
	return 0
}

// close ends the session. It waits at most closeFor, which is safe because the
// lock has been released by now, or the user has been told why not.
func (k *keeper) close() {
	if k.client == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = k.client.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeFor):
	}
}

func (k *keeper) listen(orders *json.Decoder) {
	for {
		var o order
		if orders.Decode(&o) != nil {
			close(k.orphaned)
			k.cancel(errOrphaned)
			return
		}
		if o.Ping {
			if l := k.lock.Load(); l != nil && l.Err() == nil {
				k.send(notice{Pong: true})
			}
			continue
		}
		k.take(o)
	}
}

// take passes a signal on to the command if it is running. Otherwise the signal
// ends k.ctx, and so the current wait.
func (k *keeper) take(o order) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.command == 0:
		k.cancel(interrupted(o.Signal))
	case o.Delivered:
	case k.settings.Group != 0:
		_ = syscall.Kill(k.command, o.Signal)
	default:
		_ = syscall.Kill(-k.command, o.Signal)
	}
}

// send sends a notice to dlock. It ignores errors, because listen notices when
// dlock has died.
func (k *keeper) send(n notice) {
	k.sending.Lock()
	defer k.sending.Unlock()
	_ = k.notices.Encode(n)
}

func (k *keeper) say(format string, args ...any) { k.send(notice{Say: fmt.Sprintf(format, args...)}) }

// Write sends a line of the log to dlock, which prints it. It makes the keeper
// a log output.
func (k *keeper) Write(line []byte) (int, error) {
	k.say("%s", strings.TrimSpace(string(line)))
	return len(line), nil
}

// run acquires the lock, runs the command, and returns the exit status of dlock
// run.
func (k *keeper) run() int {
	if k.settings.OncePer > 0 {
		return k.runOncePer()
	}
	lock, err := k.acquire()
	if err != nil {
		return k.refused(err)
	}
	status, err := k.work(lock)
	if unlocking := lock.Unlock(); unlocking != nil && err == nil {
		k.say("%v", unlocking)
		err = unlocking
	}
	if errors.Is(err, dlock.ErrLost) {
		return lostStatus
	}
	return status
}

// work runs the command under the lock. It returns the exit status, and an error
// if the lock is lost or the command did not start.
func (k *keeper) work(lock *dlock.Lock) (status int, err error) {
	began := time.Now()
	k.lock.Store(lock)
	k.margin = k.marginOfLease()
	k.send(notice{Granted: k.margin})
	status, err = k.start(lock)
	if err == nil {
		status, err = k.await(lock)
	}
	k.send(notice{Over: true})
	if err == nil {
		err = k.hold(lock, time.Until(began.Add(k.settings.Hold)))
	}
	return status, err
}

var errFailed = errors.New("the command has failed")

// runOncePer is run for -once-per. A run counts only if the command succeeds
// and dlock, the parent process, is still alive.
func (k *keeper) runOncePer() int {
	if err := k.open(); err != nil {
		return k.refused(err)
	}
	m := k.client.RWMutex(k.settings.Name, dlock.WithTimeout(k.settings.Wait))
	stop := k.explain(k.ctx, m)
	status := 0
	ran, err := m.OncePer(k.ctx, k.settings.OncePer, func(_ context.Context, lock *dlock.Lock) (err error) {
		stop()
		status, err = k.work(lock)
		if err == nil && (status != 0 || errors.Is(context.Cause(k.ctx), errOrphaned)) {
			err = errFailed
		}
		return err
	})
	stop()
	switch {
	case !ran && err != nil:
		return k.refused(err)
	case !ran:
		k.sayNotDue(m)
	case errors.Is(err, dlock.ErrUnlock), errors.Is(err, dlock.ErrNotRecorded):
		k.say("%v", err)
	}
	if errors.Is(err, dlock.ErrLost) {
		return lostStatus
	}
	return status
}

func (k *keeper) sayNotDue(m *dlock.RWMutex) {
	if !k.settings.ShowsWaits {
		return
	}
	if last, _, err := m.Value(k.ctx); err == nil {
		k.say("not run: %s has run for %s, and runs once per %v", k.settings.Name, last, k.settings.OncePer)
	}
}

func (k *keeper) open() error {
	named := store{driver: k.settings.Driver, dsn: k.settings.DSN}
	client, err := named.open(dlock.WithTrace(&recipes.Trace{Connected: k.connected}))
	k.client = client
	return err
}

func (k *keeper) acquire() (*dlock.Lock, error) {
	if err := k.open(); err != nil {
		return nil, err
	}
	ctx, wait := k.ctx, k.settings.Wait
	if k.settings.Try {
		wait = cmp.Or(wait, tryFor)
	}
	if wait > 0 {
		limited, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		ctx = limited
	}
	m := k.client.RWMutex(k.settings.Name)
	defer k.explain(ctx, m)()
	switch {
	case k.settings.Try && k.settings.Shared:
		return m.TryRLock(ctx)
	case k.settings.Try:
		return m.TryLock(ctx)
	case k.settings.Shared:
		return m.RLock(ctx)
	default:
		return m.Lock(ctx)
	}
}

func (k *keeper) connected(_ context.Context, info recipes.ConnectedInfo) {
	if info.Err != nil {
		k.lastError.Store(&info.Err)
		return
	}
	k.session.Store(&info.Session)
}

// explain tells the user what dlock run waits for if the wait is long. It ends
// when stop is called.
func (k *keeper) explain(ctx context.Context, m *dlock.RWMutex) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sayAfter)
		defer tick.Stop()
		for saidConnecting, saidHolder := false, !k.settings.ShowsWaits; ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			switch connected := k.session.Load() != nil; {
			case !connected && !saidConnecting:
				saidConnecting = true
				k.sayConnecting()
			case connected && !saidHolder:
				saidHolder = true
				k.sayHolder(ctx, m)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (k *keeper) sayConnecting() {
	text := fmt.Sprintf("still connecting to the store %s %q", k.settings.Driver, k.settings.DSN)
	if err := k.lastError.Load(); err != nil {
		text += fmt.Sprintf(" (last error: %v)", *err)
	}
	k.say("%s", text)
}

func (k *keeper) sayHolder(ctx context.Context, m *dlock.RWMutex) {
	if queue, err := m.Queue(ctx); err == nil && len(queue) > 1 {
		k.say("waiting for %s with %d ahead, the first of them %v", k.settings.Name, len(queue)-1, queue[0])
	}
}

// refused prints why the lock was not granted, and returns the exit status.
func (k *keeper) refused(err error) int {
	if context.Cause(k.ctx) != nil {
		return k.interruptedStatus()
	}
	k.say("not run: %v%s", err, k.holder(err))
	timedOut := errors.Is(err, dlock.ErrTimeout) && !k.settings.Try
	if errors.Is(err, dlock.ErrUnavailable) || !timedOut && !errors.Is(err, dlock.ErrLocked) {
		return storeStatus
	}
	return lockedStatus
}

// holder describes the lock's holder if err says only that the lock is held.
// Otherwise it returns "".
func (k *keeper) holder(err error) string {
	if !errors.Is(err, dlock.ErrLocked) {
		return ""
	}
	ctx, cancel := context.WithTimeout(k.ctx, sayAfter)
	defer cancel()
	queue, err := k.client.RWMutex(k.settings.Name).Queue(ctx)
	if err != nil || len(queue) == 0 {
		return ""
	}
	return fmt.Sprintf(": %v", queue[0])
}

// interruptedStatus returns the exit status after a signal or the death of
// dlock has ended k.ctx.
func (k *keeper) interruptedStatus() int {
	if sig := interrupted(0); errors.As(context.Cause(k.ctx), &sig) {
		return signalBaseStatus + int(sig)
	}
	return storeStatus // dlock has died, so nobody sees the status
}

// marginOfLease returns for how long after the end of the lease the store keeps
// the lock for this session: the margin that the driver reports, or a guess.
func (k *keeper) marginOfLease() time.Duration {
	info := k.session.Load()
	return min(cmp.Or(info.Margin, info.Timeout/4, time.Second), longestMargin)
}

var errNotStarted = errors.New("the command did not start")

// start starts the command. If that fails, it returns errNotStarted and an exit
// status.
func (k *keeper) start(lock *dlock.Lock) (status int, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return k.interruptedStatus(), errNotStarted
	}
	process, err := k.exec(lock, k.settings.Path, k.settings.Command...)
	if errors.Is(err, syscall.ENOEXEC) { // a script without #!, which a shell would run itself
		process, err = k.exec(lock, "/bin/sh", append([]string{"sh", k.settings.Path}, k.settings.Command[1:]...)...)
	}
	if err != nil {
		k.say("not run: %v", err)
		return cannotRunStatus, errNotStarted
	}
	k.command, k.group = process.Pid, process.Pid
	k.send(notice{Started: process.Pid})
	go k.reap(process.Pid)
	return 0, nil
}

func (k *keeper) exec(lock *dlock.Lock, path string, args ...string) (*os.Process, error) {
	cmd := &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: attributes(k.settings.Group)}
	cmd.Env = append(os.Environ(), lockVariable+"="+k.settings.Name, nodeVariable+"="+lock.Node(), tokenVariable+"="+strconv.FormatInt(lock.Token(), 10))
	err := cmd.Start()
	return cmd.Process, err
}

// reap reaps the command and any adopted processes until none is left.
func (k *keeper) reap(command int) {
	defer close(k.alone)
	for {
		var s syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &s, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return
		case pid == command:
			k.mu.Lock()
			k.command = 0
			k.mu.Unlock()
			k.exited <- s
		}
	}
}

func (k *keeper) isAlone() bool {
	select {
	case <-k.alone:
		return true
	default:
		return false
	}
}

// await waits until the command and all processes that it started have ended,
// and returns the exit status. If the lock is lost meanwhile, it ends them and
// returns the loss; if dlock dies, it kills them.
func (k *keeper) await(lock *dlock.Lock) (status int, lost error) {
	tick := time.NewTicker(max(k.margin/8, 1))
	defer tick.Stop()
	for seen := time.Now(); ; { // seen is when the lease was last found valid
		select {
		case s := <-k.exited:
			k.end(k.margin/2, lock.Lost())
			return exitStatus(s), k.lostBy(lock.Err(), "")
		case <-k.orphaned:
			k.end(0, nil)
			return signalBaseStatus + int(syscall.SIGKILL), nil
		case <-lock.Lost():
		case <-tick.C:
		}
		now := time.Now()
		if err := lock.Err(); err != nil {
			k.send(notice{Lost: true})
			if grace := k.margin/2 - since(seen); errors.Is(err, driver.ErrExpired) && grace > 0 {
				lost = k.lostBy(err, ": ending the command")
				k.end(grace, nil)
			} else { // no grace: another contender may already hold the lock
				lost = k.lostBy(err, ": killing the command")
				k.end(0, nil)
			}
			return lostStatus, lost
		}
		seen = now
	}
}

// lostBy tells the user that the lock is lost, unless err is nil, and returns
// err.
func (k *keeper) lostBy(err error, consequence string) error {
	if err != nil {
		k.say("%v%s", err, consequence)
	}
	return err
}

// since returns the time since t, including the time for which the machine was
// asleep.
func since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// end ends all processes that the command has started, and the command if it is
// still running: by SIGTERM, and after the grace period by SIGKILL. The grace
// period ends early when lost is closed or dlock dies. end returns when no
// process is left.
func (k *keeper) end(grace time.Duration, lost <-chan struct{}) {
	deadline := time.Now().Add(grace)
	for pause := time.Millisecond; grace > 0; pause = min(2*pause, 50*time.Millisecond) {
		rest := processes(os.Getpid(), k.group)
		if len(rest) == 0 && k.isAlone() {
			return
		}
		if pause == time.Millisecond { // the first time
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
				for _, pid := range rest {
					_ = syscall.Kill(pid, sig)
				}
			}
		}
		select {
		case <-time.After(min(pause, time.Until(deadline))):
			grace = time.Until(deadline)
		case <-lost:
			grace = 0
		case <-k.orphaned:
			grace = 0
		}
	}
	killAll(os.Getpid(), k.group, k.isAlone, func(text string) { k.say("%s", text) })
}

func exitStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return signalBaseStatus + int(s.Signal())
	}
	return s.ExitStatus()
}

// hold keeps the lock for d, or until a signal arrives or dlock dies. It
// returns an error if the lock is lost.
func (k *keeper) hold(lock *dlock.Lock, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lock.Lost():
	case <-k.ctx.Done():
	}
	return k.lostBy(lock.Err(), "")
}
