package lossweep

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// ErrStale is the error of a write that was refused because of its token.
var ErrStale = errors.New("lossweep: write refused: a greater token has been seen")

// Run calls the function work in subtests, each with a new store: once without
// a fault, and then for each moment at which work can lose its locks. There are
// two subtests for each moment: the locks' sessions expire, or the process is
// paused for longer than they last. In further subtests, another client holds
// one of the locks when work begins, or the store is down, for an hour.
//
// work must be deterministic, take its locks with [Sweep.Client], and end all
// goroutines before it returns. It runs in a bubble of testing/synctest.
// Without a fault it must return nil and write at least once.
func Run(t *testing.T, work func(t *testing.T, s *Sweep) error) {
	t.Helper()
	var base *Sweep
	if !t.Run("no-loss", func(t *testing.T) { base = play(t, moment{}, work).report(t, nil) }) || base == nil {
		return // failed, or not selected by -run
	}
	for _, m := range base.moments() {
		t.Run(m.name, func(t *testing.T) { play(t, m, work).report(t, base) })
	}
}

// moment is when and how locks are lost in one run. With the zero moment, none
// is lost.
type moment struct {
	name           string
	request, write int // where the locks are lost; zero for never
	pause          bool

	lock string // held by another client; empty for none
	down bool   // whether the store is down at the start
}

func (m moment) obstructs() bool { return m.lock != "" || m.down }

// Sweep is one run of the function under test. Its methods may be called
// concurrently.
type Sweep struct {
	t      *testing.T
	moment moment
	store  *memdriver.Store
	wire   *faults.Connector

	mu       sync.Mutex
	requests []faults.Op
	locks    []string // lock names, in order of first grant
	writes   int      // number of calls of Write and WriteToken
	made     int      // writes that were neither refused nor late
	holds    map[int64]*hold
	lost     bool
	hit      bool     // whether the loss hit a held lock
	regained bool     // whether a lock was granted after the loss
	problems []string // for the report
	err      error    // what work returned
}

type hold struct {
	held, lost bool
	told       chan struct{} // closed when the client knows the hold ended
}

func play(t *testing.T, m moment, work func(t *testing.T, s *Sweep) error) (s *Sweep) {
	synctest.Test(t, func(t *testing.T) {
		s = &Sweep{t: t, moment: m, store: memdriver.New(), holds: make(map[int64]*hold)}
		s.wire = faults.New(s.store, s.plan)
		defer s.obstruct()()
		s.err = work(t, s)
	})
	return s
}

// obstruct keeps the function under test from getting a lock, if s.moment says
// so, for an hour or until stop is called.
func (s *Sweep) obstruct() (stop func()) {
	var end func()
	switch {
	case !s.moment.obstructs():
		return func() {}
	case s.moment.down:
		end = s.store.Faults().Down()
	default:
		other := dlock.NewClient(s.store)
		if _, err := other.RWMutex(s.moment.lock).Lock(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		end = func() { _ = other.Close() }
	}
	end = sync.OnceFunc(end)
	timer := time.AfterFunc(time.Hour, end)
	return func() {
		timer.Stop()
		end()
	}
}

func (s *Sweep) moments() (all []moment) {
	for _, how := range []string{"expired", "paused"} {
		for i, op := range s.requests {
			all = append(all, moment{name: fmt.Sprintf("%s-before-request-%d-%v", how, i+1, op), request: i + 1, pause: how == "paused"})
		}
		for i := range s.writes {
			all = append(all, moment{name: fmt.Sprintf("%s-at-write-%d", how, i+1), write: i + 1, pause: how == "paused"})
		}
	}
	for i, lock := range s.locks {
		all = append(all, moment{name: fmt.Sprintf("lock-%d-held-by-another", i+1), lock: lock})
	}
	return append(all, moment{name: "store-down", down: true})
}

// Client returns a new client with these options. It is closed after work has
// returned.
func (s *Sweep) Client(opts ...dlock.Option) *dlock.Client {
	c := dlock.NewClient(s.wire, append(slices.Clip(opts), dlock.WithTrace(s.trace()))...)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *Sweep) trace() *recipes.Trace {
	type node struct {
		lock string
		seq  int64
	}
	tokens := make(map[node]int64) // guarded by s.mu
	find := func(lock, name string) node {
		_, seq, _ := driver.ParseName(name) // Downgrade renames the node, but keeps the sequence
		return node{lock, seq}
	}
	ended := func(lock, name string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		h := s.holds[tokens[find(lock, name)]]
		h.held = false
		close(h.told)
	}
	return &recipes.Trace{
		Granted: func(_ context.Context, i recipes.GrantedInfo) {
			s.mu.Lock()
			defer s.mu.Unlock()
			tokens[find(i.Lock, i.Node)] = i.Token
			if !slices.Contains(s.locks, i.Lock) {
				s.locks = append(s.locks, i.Lock)
			}
			s.holds[i.Token] = &hold{held: true, told: make(chan struct{})}
			s.regained = s.lost
		},
		Released: func(_ context.Context, i recipes.ReleasedInfo) { ended(i.Lock, i.Node) },
		Lost:     func(_ context.Context, i recipes.LostInfo) { ended(i.Lock, i.Node) },
	}
}

// plan makes the clients lose their locks before the request that s.moment
// chooses. Connect and Close do not count as requests.
func (s *Sweep) plan(_ context.Context, r faults.Request) faults.Fault {
	if r.Stage != faults.StageRequest || r.Op == faults.OpConnect || r.Op == faults.OpClose {
		return faults.Fault{}
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Op)
	now := len(s.requests) == s.moment.request
	s.mu.Unlock()
	if now {
		s.lose()
	}
	return faults.Fault{}
}

// lose makes all clients lose their locks. Each returned channel is closed when
// a client has noticed one of its losses.
func (s *Sweep) lose() (told []<-chan struct{}) {
	s.mu.Lock()
	s.lost = true
	for _, h := range s.holds {
		if h.held {
			h.held, h.lost, s.hit = false, true, true
			told = append(told, h.told)
		}
	}
	s.mu.Unlock()
	if s.moment.pause {
		s.store.Faults().PauseAll(time.Hour)
		return nil // the process has not noticed the loss yet
	}
	s.store.Faults().ExpireAll()
	return told
}

// Write tells the sweep that the program writes, under the protection of a
// lock, to a resource that does not check tokens. The text describes the write
// in the report.
func (s *Sweep) Write(what string) {
	s.mu.Lock()
	s.writes++
	now := s.writes == s.moment.write
	held := false
	for _, h := range s.holds {
		held = held || h.held
	}
	if held {
		s.made++
	} else {
		s.problem(what, "was made while no lock was held")
	}
	s.mu.Unlock()
	if now {
		s.loseAtWrite()
	}
}

func (s *Sweep) loseAtWrite() {
	for _, told := range s.lose() {
		<-told
	}
}

// WriteToken is like [Sweep.Write] for a resource that checks tokens. If the
// lock with this token was lost, the sweep acts as another process that has
// written with a greater token. The resource then refuses the write: the error
// matches [ErrStale].
func (s *Sweep) WriteToken(token int64, what string) error {
	s.mu.Lock()
	s.writes++
	now := s.writes == s.moment.write
	s.mu.Unlock()
	if now {
		s.loseAtWrite()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch h := s.holds[token]; {
	case h == nil:
		s.problem(what, fmt.Sprintf("has token %d, which no lock of this program has", token))
	case h.lost:
		return fmt.Errorf("%w than %d", ErrStale, token)
	case !h.held:
		s.problem(what, "was made after Unlock")
	default:
		s.made++
	}
	return nil
}

// problem records a write that should not have been made. s.mu must be held.
func (s *Sweep) problem(what, why string) {
	text := fmt.Sprintf("write %d, %q, %s (%s)", s.writes, what, why, callers())
	if s.hit {
		text += "; the lock had been lost"
	}
	s.problems = append(s.problems, text)
}

func callers() string {
	_, here, _, _ := runtime.Caller(0)
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var lines []string
	for f, more := frames.Next(); more && f.File != here; f, more = frames.Next() {
		lines = append(lines, fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line))
	}
	return strings.Join(lines, ", called from ")
}

// report fails t if the tested function made a mistake. base is the run without
// a loss; nil if that is s.
func (s *Sweep) report(t testing.TB, base *Sweep) *Sweep {
	for _, p := range s.problems {
		t.Error("lossweep: " + p)
	}
	switch {
	case base == nil && s.err != nil:
		t.Errorf("lossweep: the function fails without a loss: %v", s.err)
	case base == nil && s.made == 0:
		t.Error("lossweep: the function has written nothing: call Write or WriteToken where it writes")
	case base == nil, s.moment.obstructs():
	case !s.lost:
		t.Error("lossweep: the function did other requests or writes than before, so that this moment never came")
	case s.err == nil && s.made < base.made:
		t.Errorf("lossweep: the function returned nil after a loss, but it has made only %d of %d writes", s.made, base.made)
	case s.err == nil && s.hit && !s.regained:
		t.Log("lossweep: the lock was lost, and the function returned nil. It has made all writes; but does it look at the error of Unlock?")
	}
	return s
}
