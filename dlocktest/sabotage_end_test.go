package dlocktest

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var endSabotages = []sabotage{
	{"reads no clock", "timers only, which do not run while the process is paused",
		of(func(s base) timersOnly { return timersOnly{s} })},
	{"learns of its end late", "any mistake in the time that the lease runs",
		of(newLateEnd)},
	{"leaves no margin", "a lease that is as long as the store's timeout",
		of(func(s base) driver.Session { return newOwnLease(s, soundTimeout, false) })},
	{"counts its lease from the arrival of replies", "renewing the lease when the answer to a heartbeat arrives",
		of(func(s base) driver.Session { return newOwnLease(s, soundTimeout*3/4, true) })},
	{"counts its lease from the arrival of replies, in a store that is slow to end sessions", "an expirer that runs now and then, which hides that a lease is too long",
		of(func(s base) driver.Session { return slowExpiry{newOwnLease(s, soundTimeout*3/5, true)} })},
	{"takes the answer that its session is gone for an error that passes", "a client library whose errors are all treated alike",
		of(func(s base) driver.Session { return outlastsAnswers{newOwnLease(s, soundTimeout*3/4, false)} })},
	{"ends a session that was heard from after its deadline was read", "SQL: one statement that finds the sessions, and another that ends them",
		expiresByOldDeadline},
	{"purges a session before its nodes", "sessions that the store ends by a time to live, and nodes that the drivers remove",
		newPurgedFirst},
	{"returns nil from Err after its end", "a lease that is renewed by an answer which comes after its end; a new session of the store under the old name",
		of(func(s base) *undead { return &undead{base: s} })},
	{"closes Done only when Err is called", "an Err that reads the clocks, and no timer",
		of(func(s base) *lazyDone { return &lazyDone{base: s, done: make(chan struct{})} })},
	{"sends no heartbeats", "Redis, etcd: a time to live that is never renewed",
		func(s base, st *memdriver.Store) driver.Session {
			go func() {
				select {
				case <-time.After(soundTimeout):
					st.Faults().Expire(s)
				case <-s.Done():
				}
			}()
			return noHeart{s}
		}},
	{"shares one session of the store among all sessions", "one connection for the whole connector",
		func() wrap {
			first := perStore(func() *firstSession { return new(firstSession) })
			return func(s base, st *memdriver.Store) driver.Session { return inCommon{first(st).or(s), s} }
		}()},
}

type noHeart struct{ base }

type lazyDone struct {
	base
	once sync.Once
	done chan struct{}
}

func (s *lazyDone) Done() <-chan struct{} { return s.done }

func (s *lazyDone) Err() error {
	err := s.base.Err()
	if err != nil {
		s.once.Do(func() { close(s.done) })
	}
	return err
}

func (s *lazyDone) Close() error {
	err := s.base.Close()
	_ = s.Err()
	return err
}

// firstSession holds the store session that all inCommon sessions share. It is
// replaced after it has ended.
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

// inCommon is a session that shares one store session with all others. Its
// Close also closes the shared session.
type inCommon struct {
	base
	own base
}

func (s inCommon) expiring() { _ = s.base.Close() }

func (s inCommon) Close() error {
	_ = s.own.Close()
	return s.base.Close()
}

type timersOnly struct{ base }

func (s timersOnly) Err() error {
	if closed(s.Done()) {
		return s.base.Err()
	}
	return nil
}

type lateEnd struct {
	base
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
		return s.base.Err()
	}
	return nil
}

type undead struct {
	base
	asked atomic.Int32
}

func (s *undead) Err() error {
	err := s.base.Err()
	if err != nil && s.asked.Add(1) > 6 {
		return nil
	}
	return err
}

// ownLease is a session with a wrong lease of its own instead of a
// driver.Lease. Its heartbeats overlap.
type ownLease struct {
	base
	term     time.Duration
	late     bool
	mu       sync.Mutex
	from     time.Time
	over     error
	finished chan struct{}
}

func newOwnLease(s base, term time.Duration, late bool) *ownLease {
	l := &ownLease{base: s, term: term, late: late, from: time.Now(), finished: make(chan struct{})}
	go func() {
		beats := time.NewTicker(soundTimeout / 8)
		defer beats.Stop()
		for l.Err() == nil {
			select {
			case <-beats.C:
				go l.beat()
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return l
}

func (l *ownLease) beat() {
	sent := time.Now()
	_, err := l.List(context.Background(), "heartbeat")
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.late {
		sent = time.Now()
	}
	if err == nil && sent.After(l.from) {
		l.from = sent
	}
}

func (l *ownLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.from) >= l.term {
		l.end()
	}
	return l.over
}

func (l *ownLease) end() {
	if l.over == nil {
		l.over = driver.ErrSessionEnded
		close(l.finished)
	}
}

func (l *ownLease) paused(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from = l.from.Add(-d)
}

func (l *ownLease) expiring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

func (l *ownLease) Close() error {
	l.expiring()
	return l.base.Close()
}

func (l *ownLease) Done() <-chan struct{} { return l.finished }

// slowExpiry is a session with two thirds of the timeout after which the store ends it.
type slowExpiry struct{ *ownLease }

func (s slowExpiry) Describe() driver.SessionInfo {
	return driver.SessionInfo{Timeout: soundTimeout * 2 / 3}
}

type outlastsAnswers struct{ *ownLease }

func (outlastsAnswers) expiring() {}

func (s outlastsAnswers) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err != nil && s.base.Err() != nil {
		err = cmp.Or(s.Err(), errReset)
	}
	return j, err
}

func expiresByOldDeadline(s base, st *memdriver.Store) driver.Session {
	var heard atomic.Pointer[time.Time]
	hear := func(_, _ time.Duration) {
		now := time.Now()
		heard.Store(&now)
	}
	hear(0, 0)
	s.OnHeartbeat(hear)
	go func() {
		for s.Err() == nil {
			time.Sleep(soundTimeout / 32)
			if silent := time.Since(*heard.Load()); silent > soundTimeout/4 {
				time.Sleep(soundTimeout - silent)
				st.Faults().Drop(s)
			}
		}
	}()
	return s
}

// purgedFirst is a session whose end leaves its nodes, which another session
// would have to remove.
type purgedFirst struct {
	placing
	store *memdriver.Store
	cutState
	closed atomic.Bool
}

// purgers counts the sessions of a store that are not cut off.
var purgers = perStore(func() *atomic.Int64 { return new(atomic.Int64) })

func newPurgedFirst(s base, st *memdriver.Store) driver.Session {
	p := &purgedFirst{placing: placing{base: s}, store: st}
	purgers(st).Add(1)
	go func() {
		<-s.Done()
		left := purgers(st).Add(-1)
		time.Sleep(soundTimeout * 3 / 4) // until the store has ended the session
		if left == 0 && !p.closed.Load() {
			p.places.each(func(queue string, at driver.Place) { putStray(st, queue, writer) })
		}
	}()
	return p
}

// Close removes the session, and then one node after the other.
func (s *purgedFirst) Close() error {
	if s.closed.Swap(true) {
		return s.base.Close()
	}
	err := s.base.Close()
	var strays []func()
	s.places.each(func(queue string, _ driver.Place) {
		name := putStray(s.store, queue, writer)
		strays = append(strays, func() { s.store.Faults().RemoveNode(queue, name) })
	})
	for _, remove := range strays {
		time.Sleep(time.Millisecond)
		if closed(s.healed()) {
			remove()
		}
	}
	return err
}
