package dlocktest

import (
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
	{"counts its lease from the arrival of the replies to heartbeats", "renewing a driver.Lease when the answer to a heartbeat has come, with a short margin",
		of(func(s base) driver.Session { return newLateBeats(s, soundTimeout/10) })},
	{"relies on its margin for slow replies", "renewing a driver.Lease when the answer to a heartbeat has come, with the default margin",
		of(func(s base) driver.Session { return newLateBeats(s, 0) })},
	{"returns nil from Err after its end", "a lease that is renewed by an answer which comes after its end; a new session of the store under the old name",
		of(func(s base) *undead { return &undead{base: s} })},
	{"reports its end only when the store has confirmed it", "etcd: waiting for KeepAlive's channel; any client that reports a loss when it has connected again",
		of(newAsksTheStore)},
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

// asksTheStore is a session that learns of its end only from the store. While
// it is cut off, it wrongly seems to live on.
type asksTheStore struct {
	lateEnd
	cutState
}

func newAsksTheStore(s base) *asksTheStore {
	a := &asksTheStore{lateEnd: lateEnd{s, make(chan struct{})}}
	go func() {
		<-s.Done()
		<-a.healed()
		close(a.done)
	}()
	return a
}

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

// lateBeats is a session whose lease wrongly counts from the reply to a
// heartbeat instead of the request.
type lateBeats struct {
	base
	lease *driver.Lease
	kept  chan struct{} // closed when the last heartbeat has ended
}

func newLateBeats(s base, margin time.Duration) *lateBeats {
	l := &lateBeats{base: s, lease: driver.NewLease(soundTimeout, margin), kept: make(chan struct{})}
	l.lease.Renew(l.lease.Now())
	go func() {
		defer close(l.kept)
		l.lease.Run(func(ctx context.Context) error {
			_, err := s.List(ctx, "heartbeat")
			if err == nil {
				l.lease.Renew(l.lease.Now())
			}
			return err
		})
	}()
	return l
}

func (l *lateBeats) Err() error { return l.lease.Err() }

func (l *lateBeats) Done() <-chan struct{} { return l.lease.Done() }

func (l *lateBeats) paused(d time.Duration) { SkewLease(l.lease, d) }

func (l *lateBeats) expiring() { l.lease.End(nil) }

func (l *lateBeats) Close() error {
	l.lease.End(nil)
	<-l.kept
	return l.base.Close()
}
