package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/secret"
	"github.com/dlock-go/dlock/memdriver"
)

// run keeps the counter and injects the fault. All times come from its clock,
// so that holds in different processes are comparable.
type run struct {
	*settings
	out   io.Writer
	ctx   context.Context // ends at an interrupt or a failure
	stop  func()
	store *memdriver.Store     // nil unless the store is in memory
	hit   func() (heal func()) // injects the fault into the first worker

	// Each channel is closed when its event has happened.
	begun   chan struct{} // every worker has a session
	holding chan struct{} // the first worker took the lock or ended
	written chan struct{} // another worker has written, or has ended

	healed sync.WaitGroup // waits for the end of the fault

	mu       sync.Mutex // guards the fields below while workers run
	start    time.Time  // when begun was closed
	ready    int        // number of workers with a session
	attempts []*attempt // by worker; nil before it has asked
	err      error      // the first, which causes the later ones
	counter  counter
	struck   time.Duration // when the fault began, or zero
}

// counter is the resource that the lock protects.
type counter struct {
	value int
	sum   int        // equals value unless a number was lost
	seen  int64      // the greatest token of a writer
	late  *lateWrite // the write delayed by the fault, or nil
}

type lateWrite struct {
	at      time.Duration
	value   int // what the write would store
	refused bool
}

// attempt records how a worker takes and uses the lock.
type attempt struct {
	Worker  string
	Number  int // from 1; added to the counter by writers
	Mode    dlock.Mode
	Place   driver.Place  // of the last node; zero if none
	Asked   time.Duration // when Lock was called, since the run began
	Granted time.Duration // when Lock had returned
	Ended   time.Duration // last known time of the hold or wait
	Held    bool          // granted, and not lost at once
	Token   int64
	Outcome outcome
	Anomaly string // unexpected value of the counter, if any
}

type outcome int

const (
	served outcome = iota // ended regularly, or by an interrupt
	lost                  // the session ended or the node was removed
	failed                // an error of the store
	killed                // the fault has killed the worker
)

func (t *attempt) label() string {
	if t.Mode == dlock.Shared {
		return t.Worker + " R"
	}
	return t.Worker + " W"
}

// message is what a worker sends to the run. It contains the attempt so far,
// which the run needs if the worker is killed.
type message struct {
	Do      string // verb to print, or a request below
	What    string // printed after the verb
	Attempt attempt
	Value   int // the value to write
}

type reply struct {
	OK    bool          // false if the run has been stopped
	At    time.Duration // when the run handled the message
	Value int           // value of the counter
}

const (
	verbHolds = "holds"

	askReady = "?ready" // answered when the worker may begin
	askTime  = "?time"
	askRead  = "?read"  // read the counter
	askWrite = "?write" // write it
	askPause = "?pause" // pause this process; answered when it goes on
	askEnd   = "?end"   // the attempt has ended
	askFail  = "?fail"  // stop the run; What is the error
)

// announce closes the channel if it is still open. The caller must hold run.mu.
func announce(event chan struct{}) {
	select {
	case <-event:
	default:
		close(event)
	}
}

func (r *run) await(event chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func newRun(ctx context.Context, s *settings, out io.Writer) *run {
	r := &run{
		settings: s, out: out, start: time.Now(), attempts: make([]*attempt, s.Workers),
		begun: make(chan struct{}), holding: make(chan struct{}), written: make(chan struct{}),
	}
	r.ctx, r.stop = context.WithCancel(ctx)
	if s.Driver == inMemory {
		// The timeout is short, because a fault lasts until the session has ended.
		r.store = memdriver.New(memdriver.WithSessionTimeout(2 * time.Second))
	}
	return r
}

func (r *run) introduce() {
	fmt.Fprintf(r.out, `%d workers take the lock %s. Store: %s.
R reads and may share the lock with readers, W writes and must be alone; first
come, first served. A writer reads a counter, adds its own number, and writes it.
`, r.Workers, clean(r.Lock), clean(r.Driver))
	if r.Fault != "" {
		fmt.Fprintf(r.out, `Before the first worker writes, it is %s. The counter remembers the greatest
token that it has seen, and refuses smaller ones.
`, faults[r.Fault].done)
	}
	if r.Driver != inMemory {
		fmt.Fprintf(r.out, "Connecting, for %v at most ...\n", connectLimit)
	}
	fmt.Fprintln(r.out)
}

// play runs the workers until all have ended. It returns an error only if the
// run cannot begin. Later errors go into the verdict.
func (r *run) play() error {
	begin := r.beginProcess
	if r.store != nil {
		begin = r.beginGoroutine
	}
	var workers sync.WaitGroup
	for n := 1; n <= r.Workers; n++ {
		work, err := begin(n)
		if err != nil {
			r.fail(n, err)
			break
		}
		workers.Go(func() {
			if err := work(); err != nil {
				r.fail(n, err)
			}
		})
	}
	workers.Wait()
	r.healed.Wait()
	r.attempts = slices.DeleteFunc(r.attempts, func(t *attempt) bool { return t == nil })
	if r.ready == r.Workers {
		return nil
	}
	return cmp.Or(r.err, r.ctx.Err())
}

// fail stops the run because of a worker's error, and hides the store's password.
func (r *run) fail(n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s", r.worker(n), secret.Hide(err.Error(), []string{r.DSN}))
	}
	r.stop()
}

func (r *run) beginGoroutine(n int) (work func() error, err error) {
	w := newWorker(r.settings, n, r.answer)
	store := &remembered{Store: r.store}
	if n == 1 {
		r.hit = func() func() { return r.store.Faults().CutOff(store.last) }
	}
	client := dlock.NewClient(store, w.options()...)
	return func() error { return w.run(r.ctx, client) }, nil
}

// remembered is a store that keeps its last session, which the fault cuts off.
type remembered struct {
	*memdriver.Store
	last driver.Session
}

func (s *remembered) Connect(ctx context.Context) (_ driver.Session, err error) {
	s.last, err = s.Store.Connect(ctx)
	return s.last, err
}

func (r *run) answer(m message) reply {
	n := m.Attempt.Number
	switch {
	case m.Do == askReady:
		return reply{OK: r.admit(n)}
	case m.Do == askFail:
		r.fail(n, errors.New(m.What))
		return reply{}
	case n == 1 && m.Do == faults[r.Fault].at:
		return reply{OK: r.strike(m)}
	case n == 1 && m.Do == askEnd:
		r.healed.Wait() // so that the worker can close its client
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.record(m.Attempt)
	a := reply{At: time.Since(r.start)}
	switch m.Do {
	case askTime, askEnd:
	case askRead:
		a.Value = r.counter.value
		if m.Attempt.Mode == dlock.Exclusive { // from now on, earlier writers are refused
			r.counter.seen = max(r.counter.seen, m.Attempt.Token)
		}
	case askWrite:
		r.write(m)
	default:
		r.print(m.Attempt.label(), m.Do, m.What)
	}
	switch {
	case n == 1 && (m.Do == verbHolds || m.Do == askEnd):
		announce(r.holding)
	case n > 1 && (m.Do == askWrite || m.Do == askEnd):
		announce(r.written)
	}
	return a
}

// admit waits until a worker may begin. If there is a fault, the other workers
// also wait until the first one has taken the lock.
func (r *run) admit(n int) bool {
	r.mu.Lock()
	if r.ready++; r.ready == r.Workers {
		r.start = time.Now()
		announce(r.begun)
	}
	r.mu.Unlock()
	return r.await(r.begun) && (n == 1 || r.Fault == "" || r.await(r.holding))
}

// record keeps the latest state of an attempt. r.mu must be held.
func (r *run) record(t attempt) { r.attempts[t.Number-1] = &t }

// print must be called with r.mu held.
func (r *run) print(who, verb, what string) {
	line := fmt.Sprintf("%7.3fs  %s  %-8s  %s", time.Since(r.start).Seconds(), who, verb, what)
	fmt.Fprintln(r.out, strings.TrimRight(line, " "))
}

// write stores a value, unless the counter has seen a greater token. A real
// resource must compare and store atomically, too. r.mu must be held.
func (r *run) write(m message) {
	t, c := &m.Attempt, &r.counter
	what := fmt.Sprintf("%d + %d = %d with token %d", m.Value-t.Number, t.Number, m.Value, t.Token)
	refused := t.Token < c.seen
	if r.struck > 0 && t.Number == 1 && c.sum > 0 {
		c.late = &lateWrite{time.Since(r.start), m.Value, refused}
	}
	if refused {
		r.print(t.label(), "REFUSED", fmt.Sprintf("%s: the counter has seen token %d", what, c.seen))
	} else {
		r.print(t.label(), "writes", what)
		c.value, c.seen = m.Value, t.Token
		c.sum += t.Number
	}
}

// strike injects the fault just before the first worker's write. The write
// comes late, sent by the worker after a pause, otherwise by the run.
func (r *run) strike(m message) bool {
	t := m.Attempt
	r.mu.Lock()
	r.struck = time.Since(r.start)
	if r.Fault == faultKill {
		t.Ended, t.Outcome = r.struck, killed
	}
	r.record(t)
	r.print(t.label(), strings.ToUpper(faults[r.Fault].done), fmt.Sprintf("just before its write of %d", m.Value))
	r.mu.Unlock()
	heal := sync.OnceFunc(r.hit())
	context.AfterFunc(r.ctx, heal) // an interrupted worker must still unlock
	if r.Fault == faultCut {       // the worker goes on until it notices
		r.healed.Go(func() { r.deliver(m, heal) })
		return true
	}
	return r.deliver(m, heal)
}

// deliver ends the fault after another worker has written, and lets the late
// write follow.
func (r *run) deliver(m message, heal func()) bool {
	if !r.await(r.written) {
		return false
	}
	heal()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Fault == faultPause {
		r.print(m.Attempt.label(), "wakes up", "and goes on where it was")
	} else {
		r.write(m)
	}
	return true
}
