package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

// closePatience is how long a Close may be delayed.
const closePatience = 2 * time.Second

// faulty is a session of Faults.
type faulty struct {
	faults *Faults
	number int
	inner  driver.Session

	life   context.Context // ends when the session does
	expire context.CancelFunc

	closes singleflight.Group // concurrent calls of Close share one try
	gone   bool               // Close has returned nil; belongs to closes

	mu         sync.Mutex
	hungUp     bool           // no goroutine can be started any more
	background sync.WaitGroup // every goroutine of the session
	sent       map[kind]int
	watches    watches
}

// kind is what the requests of a session are counted by.
type kind struct{ method, queue string }

func (f *Faults) adopt(number int, inner driver.Session) *faulty {
	s := &faulty{faults: f, number: number, inner: inner, sent: make(map[kind]int)}
	s.life, s.expire = context.WithCancel(context.Background())
	f.mu.Lock()
	f.sessions[number] = s
	f.mu.Unlock()
	s.spawn(s.mourn)
	return s
}

// mourn ends what is on its way when the session ends.
func (s *faulty) mourn() {
	<-s.inner.Done()
	s.expire()
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	delete(s.faults.sessions, s.number)
}

func (s *faulty) behind() driver.Session { return s.inner }

// Done and Err are those of the session behind, so that neither is ever late.
func (s *faulty) Done() <-chan struct{} { return s.inner.Done() }
func (s *faulty) Err() error            { return s.inner.Err() }

// end ends the session and returns when it has. The nodes go after that.
func (s *faulty) end() {
	s.spawn(func() { _ = s.inner.Close() })
	<-s.inner.Done()
}

// Close implements driver.Session.
func (s *faulty) Close() error {
	_, err, _ := s.closes.Do("", func() (any, error) { return nil, s.leave() })
	return err
}

func (s *faulty) leave() error {
	if s.gone {
		return nil
	}
	if s.faults.decide != nil && s.inner.Err() == nil {
		s.delayClose()
	}
	err := s.inner.Close()
	s.hangUp()
	s.gone = err == nil
	return err
}

func (s *faulty) delayClose() {
	ctx, cancel := context.WithTimeout(s.life, closePatience)
	defer cancel()
	_, _ = s.faults.meet(ctx, s.numbered(Request{Method: MethodClose}))
}

// hangUp waits for all goroutines of the session.
func (s *faulty) hangUp() {
	s.expire()
	s.mu.Lock()
	s.hungUp = true
	s.mu.Unlock()
	s.background.Wait()
}

// spawn runs f on a goroutine that Close waits for, or returns false after Close.
func (s *faulty) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hungUp {
		s.background.Go(f)
	}
	return !s.hungUp
}

// numbered gives a request its numbers.
func (s *faulty) numbered(r Request) Request {
	r.Session = s.number
	s.mu.Lock()
	defer s.mu.Unlock()
	k := kind{r.Method, r.Queue}
	s.sent[k]++
	r.Nth = s.sent[k]
	return r
}

// order is a request with what it does in the store.
type order[T any] struct {
	Request
	do    func(ctx context.Context) (T, error)
	place func(T) driver.Place // of what the store has answered; may be nil
	late  func(T)              // see call; may be nil
}

// send takes a request through the faults to the store, and its reply back. The store is asked
// with a context of the session, since what is on its way does not learn that the caller has
// given up. What the driver refuses without asking the store does not come that far.
func send[T any](ctx context.Context, s *faulty, o order[T]) (v T, fault Fault, err error) {
	if s.faults.decide == nil || o.refused() {
		v, err = o.do(ctx)
		return v, Fault{}, err
	}
	if err := errors.Join(s.Err(), ctx.Err()); err != nil {
		return v, Fault{}, o.failed(err)
	}
	type sent struct {
		v T
		f Fault
	}
	c := call[sent]{r: o.Request, ctx: ctx, done: s.Done(), spawn: s.spawn, carry: func() (sent, bool, error) {
		v, fault, done, err := carry(s, o)
		return sent{v, fault}, done, err
	}}
	if o.late != nil {
		c.late = func(got sent) { o.late(got.v) }
	}
	got, err := c.wait()
	if err == nil {
		return got.v, got.f, nil
	}
	if ended := s.Err(); ended != nil {
		err = o.failed(ended)
	}
	return v, Fault{}, err
}

func (r Request) refused() bool {
	switch r.Method {
	case MethodWalk:
		return r.Name != "" && driver.CheckQueue(r.Name) != nil
	case MethodCreate:
		return driver.CheckQueue(r.Queue) != nil || driver.CheckPrefix(r.Name) != nil
	}
	return driver.CheckQueue(r.Queue) != nil
}

func carry[T any](s *faulty, o order[T]) (v T, fault Fault, done bool, err error) {
	r := o.Request
	fault, err = s.meet(r)
	if err != nil {
		return v, fault, false, err
	}
	v, err = o.do(s.life)
	if fault.Repeat && r.repeatable() {
		_, _ = o.do(s.life)
	}
	if r.Err = err; err == nil && o.place != nil {
		r.Place = o.place(v)
	}
	r.Stage = StageReply
	if _, lost := s.meet(r); lost != nil {
		return v, fault, err == nil, lost
	}
	return v, fault, err == nil, err
}

// meet is that of Faults, and ends the session if that was decided.
func (s *faulty) meet(r Request) (Fault, error) {
	fault, err := s.faults.meet(s.life, r)
	if fault.End && s.life.Err() == nil {
		s.end()
		err = r.failed(driver.ErrSessionEnded)
	}
	return fault, err
}

func (r Request) repeatable() bool {
	switch r.Method {
	case MethodDelete, MethodRelease, MethodReplace, MethodCleanUp:
		return true
	}
	return false
}

// nothing is what the reply to a Delete brings.
type nothing struct{}

// Create implements driver.Session.
func (s *faulty) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, _, err := send(ctx, s, order[driver.Place]{
		Request: s.numbered(Request{Method: MethodCreate, Queue: queue, Name: prefix}),
		do: func(ctx context.Context) (driver.Place, error) {
			return s.inner.Create(ctx, queue, prefix, data)
		},
		place: func(p driver.Place) driver.Place { return p },
		late:  func(p driver.Place) { s.cleanUp(queue, p) },
	})
	return p, err
}

// cleanUp removes a node of which the caller of its Create does not know: rule 4. It goes on until
// the store has confirmed that or the session has ended.
func (s *faulty) cleanUp(queue string, p driver.Place) {
	for wait := time.Millisecond; s.Err() == nil; wait = min(2*wait, time.Second) {
		_, _, _, err := carry(s, s.removal(MethodCleanUp, queue, p, s.inner.Delete))
		if err == nil || errors.Is(err, driver.ErrGone) || !pause(s.life, wait) {
			return
		}
	}
}

// removal is a request that removes a node, and needs nothing but the place.
func (s *faulty) removal(
	method, queue string, p driver.Place, remove func(context.Context, string, driver.Place) error,
) order[nothing] {
	return order[nothing]{
		Request: s.numbered(Request{Method: method, Queue: queue, Name: p.Name, Place: p}),
		do: func(ctx context.Context) (nothing, error) {
			return nothing{}, remove(ctx, queue, p)
		},
	}
}

// Delete implements driver.Session.
func (s *faulty) Delete(ctx context.Context, queue string, p driver.Place) error {
	_, _, err := send(ctx, s, s.removal(MethodDelete, queue, p, s.inner.Delete))
	return err
}

// List implements driver.Session.
func (s *faulty) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, _, err := send(ctx, s, order[[]driver.Node]{
		Request: s.numbered(Request{Method: MethodList, Queue: queue}),
		do: func(ctx context.Context) ([]driver.Node, error) {
			return s.inner.List(ctx, queue)
		},
	})
	return nodes, err
}

// Describe implements driver.Describer, also where the session behind does not.
func (s *faulty) Describe() driver.SessionInfo { return driver.Describe(s.inner) }

// String names the session in the output of tests.
func (s *faulty) String() string { return fmt.Sprintf("session %d of Faults", s.number) }
