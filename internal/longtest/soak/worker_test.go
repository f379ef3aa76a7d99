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
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/longtest/servers"
)

// workerVariable turns the test binary into a worker. Its value is the worker's
// settings.
const workerVariable = "DLOCK_TEST_SOAK_WORKER"

type settings struct {
	DSN    string
	Name   string // prefix of host names and file names
	Dir    string // for the counters and the worker's files
	Seed   uint64
	Actors int
}

// file opens the worker's log, progress, faults or counts file.
func (s *settings) file(kind string) (*os.File, error) {
	return os.OpenFile(filepath.Join(s.Dir, s.Name+"."+kind), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
}

// stuck begins the report of a fault that is excused if the servers diverged.
const stuck = "stuck: "

// Long locks are held for seconds, so that every fault hits a held lock.
var (
	briefLocks = []string{"a", "b/c", tamperedLock}
	longLocks  = []string{"long/0", "long/1", "long/2"}
	lockNames  = slices.Concat(briefLocks, longLocks)
)

const tamperedLock = "tampered"

// waitLimit is generous, because busy servers may take minutes to elect a
// leader.
const waitLimit = 5 * time.Minute

type worker struct {
	settings
	client   *dlock.Client
	progress *os.File
	faults   *os.File
	acquired atomic.Int64
	mu       sync.Mutex
	counts   map[string]int
	halt     atomic.Pointer[string] // lock whose next writer must pause
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
// If the input ends without "finish", the worker exits at once.
func work(text string) int {
	w := &worker{finish: make(chan struct{}), goOn: make(chan struct{}), counts: make(map[string]int)}
	if err := w.play(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (w *worker) play(text string) (err error) {
	if err := json.Unmarshal([]byte(text), &w.settings); err != nil {
		return err
	}
	if w.faults, err = w.file("faults"); err != nil {
		return err
	}
	if w.progress, err = os.Create(progressFile(w.Dir, w.Name)); err != nil {
		return err
	}
	go w.readOrders(os.Stdin)
	before := runtime.NumGoroutine()
	if err := w.run(); err != nil {
		return err
	}
	w.checkGoroutines(before)
	counts, err := w.file("counts")
	if err != nil {
		return err
	}
	return json.NewEncoder(counts).Encode(w.counts)
}

func progressFile(dir, name string) string { return filepath.Join(dir, name+".progress") }

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

func (w *worker) run() error {
	log, err := w.file("log")
	if err != nil {
		return err
	}
	defer log.Close()
	w.client, err = dlock.Open("zk", w.DSN, dlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		return err
	}
	var actors sync.WaitGroup
	for i := range w.Actors {
		a := newActor(w, i)
		actors.Go(a.run)
	}
	longHolder := newActor(w, w.Actors)
	actors.Go(longHolder.holdLong)
	actors.Go(w.ping)
	actors.Wait()
	longHolder.lastRound()
	// On a slow machine Close may time out with ErrUnavailable.
	if err := w.client.Close(); err != nil && !errors.Is(err, driver.ErrUnavailable) {
		w.fault("Close: %v", err)
	}
	return nil
}

// ping acts like a health check, whose answered reads must not prolong a lease.
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
	fmt.Fprintf(w.faults, "%q\n", fmt.Sprintf(format, args...))
}

func (w *worker) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// countAcquisition also writes the number of acquisitions to the progress file.
func (w *worker) countAcquisition(mode dlock.Mode) {
	w.count("acquisitions, " + mode.String())
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

var between = servers.Between

func source(seed uint64, stream int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(stream))) }
