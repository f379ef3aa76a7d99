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

// workerVariable turns the test binary into a worker. Its value is the worker's
// settings.
const workerVariable = "DLOCK_TEST_SOAK_WORKER"

type settings struct {
	DSN      string
	Name     string // also prefixes the actors' host names
	Dir      string // directory of the counters
	Journal  string
	Progress string // file with the number of acquisitions
	Log      string // file for the client's log
	Seed     uint64
	Actors   int
}

// Brief locks are held for milliseconds by many actors. Long locks are held for
// seconds, so that every fault finds one that can be lost. Only tamperedLock
// has its nodes removed by an operator.
var (
	briefLocks = []string{"a", "b/c", tamperedLock}
	longLocks  = []string{"long/0", "long/1", "long/2"}
	lockNames  = slices.Concat(briefLocks, longLocks)
)

const tamperedLock = "tampered"

// waitLimit bounds each wait of the test. It is generous, because servers on a
// busy machine with a slow disk may need minutes to elect a leader.
const waitLimit = 5 * time.Minute

type worker struct {
	settings settings
	journal  *journal
	client   *dlock.Client
	watcher  *watcher
	progress *os.File
	acquired atomic.Int64
	ids      atomic.Int64
	halt     atomic.Pointer[string] // lock whose next writer must pause before its write
	goOn     chan struct{}          // lets that writer continue
	finish   chan struct{}
}

// work is the main function of a worker process. It reads orders from standard
// input, one a line:
//
//	halt <lock>  the next writer under that lock waits just before it writes
//	write        that writer goes on
//	finish       end the calls in flight, check that nothing is left, and exit
//
// If the input ends without "finish", the test binary is dead, and the worker
// exits at once.
func work(text string) int {
	w := &worker{finish: make(chan struct{}), goOn: make(chan struct{})}
	if err := w.open(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	go w.readOrders(os.Stdin)
	before := runtime.NumGoroutine()
	if err := w.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	w.checkGoroutines(before)
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

func (w *worker) readOrders(orders io.Reader) {
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

// run lets the actors work until the worker is told to finish. Finally it
// acquires each lock once more.
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
	longHolder := newActor(w, w.settings.Actors)
	actors.Go(longHolder.holdLong)
	actors.Go(w.ping)
	actors.Wait()
	longHolder.lastRound()
	// On a slow machine Close may time out with ErrUnavailable.
	if err := w.client.Close(); err != nil && !errors.Is(err, driver.ErrUnavailable) {
		w.fault("Close: %v", err)
	}
	w.watcher.close()
	return nil
}

// ping reads from the store in a loop, like a health check. A server that is
// cut off keeps answering such reads, which must not prolong a lease.
func (w *worker) ping() {
	for !w.finishing() {
		ctx, cancel := within(time.Second)
		w.client.Ping(ctx)
		cancel()
		w.pause(100 * time.Millisecond)
	}
}

func (w *worker) checkGoroutines(before int) {
	for end := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			w.fault("goroutines are left after Close:\n%s", stacks[:runtime.Stack(stacks, true)])
			return
		}
	}
}

func (w *worker) fault(format string, args ...any) {
	w.journal.note(event{Kind: fault, At: now(), Text: fmt.Sprintf(format, args...)})
}

// countAcquisition updates the file in which the test sees the worker's
// progress.
func (w *worker) countAcquisition() {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(w.acquired.Add(1)))
	// Concurrent writes may be reordered, but the test looks only for a
	// change.
	w.progress.WriteAt(n[:], 0)
}

func (w *worker) finishing() bool {
	select {
	case <-w.finish:
		return true
	default:
		return false
	}
}

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

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	x := r.Float64()
	return least + time.Duration(x*x*float64(most-least))
}
