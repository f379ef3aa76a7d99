//go:build linux || darwin

package soak

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// workerVariable makes the test binary a worker with the settings in it.
const workerVariable = "DLOCK_TEST_SOAK_WORKER"

// settings are what a worker is told when it starts.
type settings struct {
	DSN      string
	Name     string // of the worker, and what its host names begin with
	Dir      string // of the counters
	Journal  string
	Progress string // the file that counts its acquisitions
	Log      string // of its client
	Seed     uint64
	Actors   int
}

// The locks. The brief ones are held for milliseconds by many; an operator removes nodes of one of them. The long ones
// are held for seconds each, by one goroutine of each worker, so that there is something to lose in every fault.
var (
	briefLocks = []string{"a", "b/c", tamperedLock}
	longLocks  = []string{"long/0", "long/1", "long/2"}
	lockNames  = slices.Concat(briefLocks, longLocks)
)

const tamperedLock = "tampered"

// patience is how long a worker's last round, on servers that are all well, may take.
const patience = 2 * time.Minute

// worker is a process with one client, several goroutines that use it, and one that looks at what they hold.
type worker struct {
	settings settings
	journal  *journal
	client   *dlock.Client
	watcher  *watcher
	progress *os.File
	gained   atomic.Int64 // acquisitions
	ids      atomic.Int64
	halt     atomic.Pointer[string] // the lock whose next writer is to wait before it writes
	goOn     chan struct{}          // ends that
	finish   chan struct{}
}

// work is what a worker process does. It obeys a line of its standard input at a time:
//
//	halt <lock>  the next one who writes under that lock waits just before it does so
//	write        it writes
//	finish       stop when what is under way is done, and see that nothing is left
//
// When the input ends without that, whoever started it is dead, and it ends at once.
func work(text string) int {
	w := &worker{finish: make(chan struct{}), goOn: make(chan struct{})}
	if err := w.open(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go w.obey(os.Stdin)
	before := runtime.NumGoroutine()
	if err := w.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w.leaves(before)
	w.journal.note(event{Kind: finished, At: now()})
	if err := w.journal.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w *worker) open(text string) (err error) {
	if err := json.Unmarshal([]byte(text), &w.settings); err != nil {
		return err
	}
	if w.journal, err = newJournal(w.settings.Journal); err != nil {
		return err
	}
	w.progress, err = os.OpenFile(w.settings.Progress, os.O_WRONLY|os.O_CREATE, 0o644)
	return err
}

func (w *worker) obey(orders io.Reader) {
	finish := sync.OnceFunc(func() { close(w.finish) })
	for lines := bufio.NewScanner(orders); lines.Scan(); {
		switch order, lock, _ := strings.Cut(lines.Text(), " "); order {
		case "halt":
			w.halt.Store(&lock)
		case "write":
			w.goOn <- struct{}{}
		case "finish":
			finish()
		}
	}
	os.Exit(3)
}

// run works until it is told to finish, and takes each lock once more in the end.
func (w *worker) run() error {
	log, err := os.OpenFile(w.settings.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	w.client, err = dlock.Open("zk", w.settings.DSN, dlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		return err
	}
	w.watcher = newWatcher()
	var actors sync.WaitGroup
	for i := range w.settings.Actors {
		a := newActor(w, i)
		actors.Go(a.run)
	}
	keeper := newActor(w, w.settings.Actors)
	actors.Go(keeper.keep)
	actors.Go(w.ping)
	actors.Wait()
	keeper.lastRound()
	if err := w.client.Close(); err != nil && !errors.Is(err, driver.ErrUnavailable) { // which a machine that is slow may cause
		w.fault("Close: %v", err)
	}
	w.watcher.close()
	return nil
}

// ping reads from the store all the time, as an application that looks after its health does. A server that has lost
// the others goes on answering that.
func (w *worker) ping() {
	for !w.finishing() {
		ctx, cancel := within(time.Second)
		w.client.Ping(ctx)
		cancel()
		w.pause(100 * time.Millisecond)
	}
}

// leaves sees that the client has left no goroutine.
func (w *worker) leaves(before int) {
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			w.fault("goroutines are left after Close:\n%s", stacks[:runtime.Stack(stacks, true)])
			return
		}
	}
}

func (w *worker) fault(format string, args ...any) {
	w.journal.note(event{Kind: fault, At: now(), Told: fmt.Sprintf(format, args...)})
}

// advance tells the crew that somebody has got a lock.
func (w *worker) advance() {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(w.gained.Add(1)))
	w.progress.WriteAt(n[:], 0) // two at once may write the smaller one last: it moved all the same
}

func (w *worker) finishing() bool {
	select {
	case <-w.finish:
		return true
	default:
		return false
	}
}

// pause waits, but not for somebody who is to finish.
func (w *worker) pause(d time.Duration) {
	select {
	case <-w.finish:
	case <-time.After(d):
	}
}

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func source(seed uint64, stream int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(stream))) }

// between draws a time, small ones more often.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	x := r.Float64()
	return least + time.Duration(x*x*float64(most-least))
}
