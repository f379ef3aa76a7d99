package dlocktest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var endSabotages = []sabotage{
	{"looks at no clock", "timers only: they stand still while the process does",
		of(func(s base) timersOnly { return timersOnly{s} })},
	{"learns of its end late", "counting the lease from the time at which the answer arrived, or without a margin",
		of(newLateEnd)},
	{"lives again", "a lease that is renewed by an answer which comes after its end; a new session of the store under the old name",
		of(func(s base) *undead { return &undead{releasing: s} })},
	{"asks the store whether it lives", "etcd: waiting for KeepAlive's channel; any client that reports a loss when it has connected again",
		of(newAsksTheStore)},
	{"closes Done when it is asked only", "an Err that looks at the clocks, and no timer",
		of(func(s base) *lazyDone { return &lazyDone{releasing: s, done: make(chan struct{})} })},
	{"sends no heartbeats", "Redis, etcd: a time to live that nobody renews",
		func(s base, st *memdriver.Store) driver.Session {
			go func() {
				select {
				case <-time.After(soundTimeout):
					st.Faults().Expire(s.full)
				case <-s.Done():
				}
			}()
			return noHeart{s}
		}},
	{"shares one session of the store with everybody", "one connection for the whole connector",
		func() func(base, *memdriver.Store) driver.Session {
			first := perStore(func() *firstSession { return new(firstSession) })
			return func(s base, st *memdriver.Store) driver.Session { return inCommon{first(st).or(s), s} }
		}()},
}

type noHeart struct{ *releasing }

// asksTheStore does not notice its end while it is cut off.
type asksTheStore struct {
	lateEnd
	mu    sync.Mutex
	whole chan struct{}
}

func newAsksTheStore(s base) *asksTheStore {
	a := &asksTheStore{lateEnd: lateEnd{s, make(chan struct{})}, whole: make(chan struct{})}
	close(a.whole)
	go func() {
		<-s.Done()
		a.mu.Lock()
		whole := a.whole
		a.mu.Unlock()
		<-whole
		close(a.done)
	}()
	return a
}

func (a *asksTheStore) cut(now bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now {
		a.whole = make(chan struct{})
		return
	}
	close(a.whole)
}

type lazyDone struct {
	*releasing
	once sync.Once
	done chan struct{}
}

func (s *lazyDone) Done() <-chan struct{} { return s.done }

func (s *lazyDone) Err() error {
	err := s.releasing.Err()
	if err != nil {
		s.once.Do(func() { close(s.done) })
	}
	return err
}

func (s *lazyDone) Close() error {
	err := s.releasing.Close()
	_ = s.Err()
	return err
}

// firstSession is the one that all share.
type firstSession struct {
	mu sync.Mutex
	s  base
}

func (f *firstSession) or(s base) base {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.s == nil || f.s.Err() != nil {
		f.s = s
	}
	return f.s
}

// inCommon uses the session of somebody else; its own goes with it.
type inCommon struct {
	*releasing
	own base
}

func (s inCommon) expiring() { _ = s.releasing.Close() }

func (s inCommon) Close() error {
	_ = s.own.Close()
	return s.releasing.Close()
}

type timersOnly struct{ *releasing }

func (s timersOnly) Err() error {
	if closed(s.Done()) {
		return s.releasing.Err()
	}
	return nil
}

type lateEnd struct {
	*releasing
	done chan struct{}
}

func newLateEnd(s base) driver.Session {
	l := lateEnd{s, make(chan struct{})}
	go func() {
		<-s.Done()
		time.Sleep(soundTimeout)
		close(l.done)
	}()
	return l
}

func (s lateEnd) Done() <-chan struct{} { return s.done }

func (s lateEnd) Err() error {
	if closed(s.done) {
		return s.releasing.Err()
	}
	return nil
}

type undead struct {
	*releasing
	asked atomic.Int32
}

func (s *undead) Err() error {
	err := s.releasing.Err()
	if err != nil && s.asked.Add(1) > 6 {
		return nil
	}
	return err
}
