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
	"github.com/dlock-go/dlock/internal/lastrun"
	"github.com/dlock-go/dlock/recipes"
)

// Environment variables that describe the lock to the command run under it.
const (
	lockVariable  = "DLOCK_LOCK"
	nodeVariable  = "DLOCK_NODE"
	tokenVariable = "DLOCK_TOKEN"
)

const (
	// longestMargin limits holderProcess.margin, so that a long session timeout
	// does not make dlock wait long between SIGTERM and SIGKILL.
	longestMargin = 20 * time.Second
	// sayAfter is how long a wait may last before the user is told of it.
	sayAfter = time.Second
	// killDelay is the time between SIGTERM and SIGKILL for a command that has
	// run for longer than -max.
	killDelay = 10 * time.Second
	closeFor  = 5 * time.Second
)

// holderProcess is the child of dlock run that holds the lock.
type holderProcess struct {
	settings runSettings
	socket   *os.File
	client   *dlock.Client
	margin   time.Duration // from the lease's end to another grant

	ctx      context.Context // done when dlock dies or take cancels it
	cancel   context.CancelCauseFunc
	orphaned chan struct{} // closed when dlock has died
	exited   chan syscall.WaitStatus
	alone    chan struct{} // closed when all children have been reaped

	session atomic.Pointer[driver.SessionInfo] // the latest session
	warned  atomic.Bool                        // a driver has warned, so explain says nothing
	lock    atomic.Pointer[dlock.Lock]         // nil until granted

	mu      sync.Mutex
	command int // guarded by mu; running process id, or 0
	group   int // the command's process group, unless settings.Group is set

	sending sync.Mutex
	notices *json.Encoder // guarded by sending
}

// interrupted is the cancellation cause of h.ctx if a signal arrives while no
// command runs.
type interrupted syscall.Signal

func (s interrupted) Error() string { return syscall.Signal(s).String() }

// errOrphaned is the cause of h.ctx after dlock, the parent process, has died.
var errOrphaned = errors.New("dlock has died")

// holderMain is the main function of the holder process. Its argument is the
// number of the file descriptor of the socket to dlock.
func holderMain(socket string) int {
	// On Linux, the command is killed when the thread that started it ends, so
	// this thread must not end (see Pdeathsig).
	runtime.LockOSThread()
	signal.Notify(make(chan os.Signal, 1), forwarded()...) // dropped, because dlock passes signals through the socket
	catchBrokenPipes()
	adoptOrphans()
	fd, err := strconv.Atoi(socket)
	if err != nil {
		return usageStatus
	}
	syscall.CloseOnExec(fd)
	h := &holderProcess{socket: os.NewFile(uintptr(fd), "dlock"), orphaned: make(chan struct{}), exited: make(chan syscall.WaitStatus, 1), alone: make(chan struct{})}
	h.notices = json.NewEncoder(h.socket)
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	orders := json.NewDecoder(h.socket)
	if err := orders.Decode(&h.settings); err != nil {
		return usageStatus // dlock has died
	}
	go h.listen(orders)
	log.SetFlags(0)
	log.SetOutput(h) // for warnings that a driver writes to slog.Default
	status := h.run()
	h.send(notice{Status: &status})
	h.close()
	return 0
}

// close ends the session. It gives up after closeFor, because the user already
// knows whether the lock was released.
func (h *holderProcess) close() {
	if h.client == nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = h.client.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeFor):
	}
}

func (h *holderProcess) listen(orders *json.Decoder) {
	for {
		var o order
		if orders.Decode(&o) != nil {
			close(h.orphaned)
			h.cancel(errOrphaned)
			return
		}
		if o.Ping {
			if l := h.lock.Load(); l != nil && l.Err() == nil {
				h.send(notice{Pong: true})
			}
			continue
		}
		h.take(o)
	}
}

// take passes a signal on to the command. If none runs, the signal ends the
// wait for the lock or for -hold.
func (h *holderProcess) take(o order) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.command == 0:
		h.cancel(interrupted(o.Signal))
	case o.Delivered:
	case h.settings.Group != 0:
		_ = syscall.Kill(h.command, o.Signal)
	default:
		_ = syscall.Kill(-h.command, o.Signal)
	}
}

// send sends a notice to dlock. It ignores errors, because an error means that
// dlock has died, and h.listen handles that.
func (h *holderProcess) send(n notice) {
	h.sending.Lock()
	defer h.sending.Unlock()
	_ = h.notices.Encode(n)
}

func (h *holderProcess) say(format string, args ...any) {
	h.send(notice{Say: fmt.Sprintf(format, args...)})
}

// Write implements io.Writer for the log. It sends each line to dlock to print.
func (h *holderProcess) Write(line []byte) (int, error) {
	h.warned.Store(true)
	h.say("%s", strings.TrimSpace(string(line)))
	return len(line), nil
}

func (h *holderProcess) run() int {
	if h.settings.OncePer > 0 {
		return h.runOncePer()
	}
	lock, err := h.acquire()
	if err != nil {
		return h.refused(err)
	}
	status, err := h.work(lock)
	if unlocking := lock.Unlock(); unlocking != nil && err == nil {
		h.say("%v", unlocking)
		err = unlocking
	}
	if errors.Is(err, dlock.ErrLost) {
		return lostStatus
	}
	return status
}

// work runs the command under the lock. It fails if the lock is lost or the
// command does not start.
func (h *holderProcess) work(lock *dlock.Lock) (status int, err error) {
	began := time.Now()
	h.lock.Store(lock)
	info := h.session.Load()
	h.margin = min(cmp.Or(info.Margin, info.Timeout/4, time.Second), longestMargin)
	h.send(notice{Granted: h.margin})
	status, err = h.start(lock)
	if err == nil {
		status, err = h.await(lock)
	}
	h.send(notice{Over: true})
	if err == nil {
		err = h.hold(lock, time.Until(began.Add(h.settings.Hold)))
	}
	return status, err
}

var errFailed = errors.New("the command has failed")

// runOncePer is run for -once-per. A run counts only if the command succeeds
// and dlock is still alive.
func (h *holderProcess) runOncePer() int {
	if err := h.open(); err != nil {
		return h.refused(err)
	}
	m := h.client.RWMutex(h.settings.Name, dlock.WithTimeout(h.settings.Wait))
	stop := h.explain(h.ctx, m)
	status := 0
	ran, err := m.OncePer(h.ctx, h.settings.OncePer, func(_ context.Context, lock *dlock.Lock) (err error) {
		stop()
		began := time.Now()
		status, err = h.work(lock)
		if err == nil && (status != 0 || errors.Is(context.Cause(h.ctx), errOrphaned)) {
			h.recordFailure(m, lock, began, max(status, 1)) // 0 counts as 1 if dlock died
			err = errFailed
		}
		return err
	})
	stop()
	switch {
	case !ran && err != nil:
		return h.refused(err)
	case !ran && h.settings.ShowsWaits:
		value, _, err := m.Value(h.ctx)
		if last, bad := lastrun.Parse(value); err == nil && bad == nil {
			h.say("not run: %s succeeded last at %s, and runs once per %v", h.settings.Name, last.Succeeded.Format(time.RFC3339), h.settings.OncePer)
		}
	case errors.Is(err, dlock.ErrUnlock), errors.Is(err, dlock.ErrNotRecorded):
		h.say("%v", err)
	}
	if errors.Is(err, dlock.ErrLost) {
		return lostStatus
	}
	return status
}

// recordFailure stores the failed run in the lock's value, which "dlock last"
// shows, and keeps the time of the last success. It is best effort.
func (h *holderProcess) recordFailure(m *dlock.RWMutex, lock *dlock.Lock, began time.Time, status int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), closeFor)
	defer cancel()
	value, _, err := m.Value(ctx)
	if last, bad := lastrun.Parse(value); err == nil && bad == nil {
		run := lastrun.Run{Succeeded: last.Succeeded, Failed: began, Status: &status, Node: lock.Node()}
		_ = lock.SetValue(ctx, []byte(run.String()))
	}
}

func (h *holderProcess) open() error {
	client, err := h.store().open(dlock.WithLogger(nil), dlock.WithTrace(&recipes.Trace{Connected: h.connected})) // no logger, because explain prints the same messages
	h.client = client
	return err
}

func (h *holderProcess) store() *store {
	return &store{driver: h.settings.Driver, dsn: h.settings.DSN}
}

func (h *holderProcess) acquire() (*dlock.Lock, error) {
	if err := h.open(); err != nil {
		return nil, err
	}
	ctx, wait := h.ctx, h.settings.Wait
	if h.settings.Try {
		wait = cmp.Or(wait, tryFor)
	}
	m := h.client.RWMutex(h.settings.Name, dlock.WithTimeout(wait))
	defer h.explain(ctx, m)()
	switch {
	case h.settings.Try && h.settings.Shared:
		return m.TryRLock(ctx)
	case h.settings.Try:
		return m.TryLock(ctx)
	case h.settings.Shared:
		return m.RLock(ctx)
	default:
		return m.Lock(ctx)
	}
}

func (h *holderProcess) connected(_ context.Context, info recipes.ConnectedInfo) {
	if info.Err != nil {
		return
	}
	if h.session.Swap(&info.Session) == nil && h.settings.NamesStore {
		h.say("the store is %s", h.store().name(info.Session.Server))
	}
}

// explain tells the user what a long wait is for, until stop is called.
func (h *holderProcess) explain(ctx context.Context, m *dlock.RWMutex) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(sayAfter)
		defer tick.Stop()
		saidHolder, saidConnecting := !h.settings.ShowsWaits, time.Time{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			switch connected := h.session.Load() != nil; {
			case !connected && time.Since(saidConnecting) > time.Minute:
				saidConnecting = time.Now()
				if err := h.client.Connected(); err != nil && !h.warned.Swap(false) {
					h.say("still connecting to the store %s: %s", h.store().name(""), strings.TrimPrefix(err.Error(), "dlock: "))
				}
			case connected && !saidHolder:
				saidHolder = true
				if queue, err := m.Queue(ctx); err == nil && len(queue) > 1 {
					h.say("waiting for %s with %d ahead, the first of them %v", h.settings.Name, len(queue)-1, queue[0])
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (h *holderProcess) refused(err error) int {
	if context.Cause(h.ctx) != nil {
		return h.interruptedStatus()
	}
	timedOut := errors.Is(err, dlock.ErrTimeout) && !h.settings.Try
	locked := !errors.Is(err, dlock.ErrUnavailable) && (timedOut || errors.Is(err, dlock.ErrLocked))
	if !locked || !h.settings.Quiet {
		h.say("not run: %v%s", err, h.holder(err))
	}
	if locked {
		return h.settings.Locked
	}
	return storeStatus
}

// holder returns text about the lock's holder to add to the error ErrLocked.
func (h *holderProcess) holder(err error) string {
	if !errors.Is(err, dlock.ErrLocked) {
		return ""
	}
	ctx, cancel := context.WithTimeout(h.ctx, sayAfter)
	defer cancel()
	queue, err := h.client.RWMutex(h.settings.Name).Queue(ctx)
	if err != nil || len(queue) == 0 {
		return ""
	}
	return fmt.Sprintf(": %v", queue[0])
}

func (h *holderProcess) interruptedStatus() int {
	if sig := interrupted(0); errors.As(context.Cause(h.ctx), &sig) {
		return signalBaseStatus + int(sig)
	}
	return storeStatus // dlock has died, so nobody sees the status
}

var errNotStarted = errors.New("the command did not start")

func (h *holderProcess) start(lock *dlock.Lock) (status int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return h.interruptedStatus(), errNotStarted
	}
	process, err := h.exec(lock, h.settings.Path, h.settings.Command...)
	if errors.Is(err, syscall.ENOEXEC) { // a script without #! runs in sh
		process, err = h.exec(lock, "/bin/sh", append([]string{"sh", h.settings.Path}, h.settings.Command[1:]...)...)
	}
	if err != nil {
		h.say("not run: %v", err)
		return cannotRunStatus, errNotStarted
	}
	h.command, h.group = process.Pid, process.Pid
	h.send(notice{Started: process.Pid})
	go reap(process.Pid, h.ended, h.alone)
	return 0, nil
}

func (h *holderProcess) ended(s syscall.WaitStatus) {
	h.mu.Lock()
	h.command = 0
	h.mu.Unlock()
	h.exited <- s
}

func (h *holderProcess) exec(lock *dlock.Lock, path string, args ...string) (*os.Process, error) {
	cmd := &exec.Cmd{Path: path, Args: args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: attributes(h.settings.Group)}
	cmd.Env = append(os.Environ(), lockVariable+"="+h.settings.Name, nodeVariable+"="+lock.Node(), tokenVariable+"="+strconv.FormatInt(lock.Token(), 10))
	err := cmd.Start()
	return cmd.Process, err
}

// await waits for all processes of the command, and ends them if the lock is
// lost or dlock dies.
func (h *holderProcess) await(lock *dlock.Lock) (status int, lost error) {
	tick := time.NewTicker(max(h.margin/8, 1))
	defer tick.Stop()
	var tooLong <-chan time.Time
	if h.settings.Max > 0 {
		tooLong = time.After(h.settings.Max)
	}
	for seen := time.Now(); ; { // seen: when the lease was found valid
		select {
		case s := <-h.exited:
			h.end(h.margin/2, lock.Lost())
			return exitStatus(s), h.lostBy(lock.Err(), "")
		case <-h.orphaned:
			h.end(0, nil)
			return signalBaseStatus + int(syscall.SIGKILL), nil
		case <-tooLong:
			h.say("the command has run for %v: ending it", h.settings.Max)
			h.end(killDelay, lock.Lost())
			return tooLongStatus, h.lostBy(lock.Err(), "")
		case <-lock.Lost():
		case <-tick.C:
		}
		now := time.Now()
		if err := lock.Err(); err != nil {
			h.send(notice{Lost: true})
			nobody := errors.Is(err, driver.ErrExpired) || errors.Is(err, driver.ErrLostData)
			if delay := h.margin/2 - since(seen); nobody && delay > 0 {
				lost = h.lostBy(err, ": ending the command")
				h.end(delay, nil)
			} else { // another contender may already hold the lock
				lost = h.lostBy(err, ": killing the command")
				h.end(0, nil)
			}
			return lostStatus, lost
		}
		seen = now
	}
}

// lostBy returns err and, if it is not nil, tells the user of the loss.
func (h *holderProcess) lostBy(err error, consequence string) error {
	if err != nil {
		h.say("%v%s", err, consequence)
	}
	return err
}

// since includes time that the machine was asleep, during which the monotonic
// clock stops.
func since(t time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// end sends SIGTERM, then SIGKILL when the grace is over, lost is closed, or
// dlock dies. It returns when no process is left.
func (h *holderProcess) end(grace time.Duration, lost <-chan struct{}) {
	deadline := time.Now().Add(grace)
	for pause := time.Millisecond; grace > 0; pause = min(2*pause, 50*time.Millisecond) {
		rest := processes(os.Getpid(), h.group)
		if len(rest) == 0 && isClosed(h.alone) {
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
		case <-h.orphaned:
			grace = 0
		}
	}
	killAll(os.Getpid(), h.group, h.alone, func(text string) { h.say("%s", text) })
}

func exitStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return signalBaseStatus + int(s.Signal())
	}
	return s.ExitStatus()
}

// hold keeps the lock for the duration d, or until a signal arrives or dlock
// dies. It returns an error if the lock is lost.
func (h *holderProcess) hold(lock *dlock.Lock, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-lock.Lost():
	case <-h.ctx.Done():
	}
	return h.lostBy(lock.Err(), "")
}
