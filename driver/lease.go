package driver

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/leasehook"
)

// Lease tells when a session must be taken for ended: it implements rule 8 for drivers whose
// store drops a session that it has not heard of for some time.
//
// The store counts its timeout from the instant at which a request reaches it, which is never
// before the request was sent. So a lease counts from the sending time of a request of which a
// reply has proved that the store counted it, and its term is shorter than the store's timeout
// by a margin for the drift of two clocks. When the term has passed, the lease has ended for
// good: a reply that arrives later cannot revive it. (The argument is that of Gray and
// Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
// Consistency", 1989.)
//
// Time is read from the monotonic and from the wall clock, and whichever says that more has
// passed is believed: the monotonic clock may stand still while a machine sleeps, and the wall
// clock may be set back. A wall clock that is set forward by more than what is left of the term
// ends the lease early, which is safe.
//
// A Lease is safe for use by many goroutines and its methods never block.
type Lease struct {
	term  time.Duration
	clock atomic.Pointer[func() Instant]
	done  chan struct{}

	// What is asked all the time takes no mutex. Both are written under mu.
	from start
	over atomic.Bool // err is set, and done closed before mu is free

	mu      sync.Mutex
	timer   *time.Timer
	renewed Instant // when Renew or Hold was called last, for the error
	err     error
}

// start is the Instant that a lease counts from. Who reads it while it moves on may see the new wall
// clock with the old monotonic one, by which the lease has less left; but never the other way round,
// by which it would have more left if the wall clock was set back.
type start struct{ mono, wall atomic.Int64 }

func (s *start) set(t Instant) {
	s.wall.Store(int64(t.wall))
	s.mono.Store(int64(t.mono))
}

func (s *start) get() (t Instant) {
	t.mono = time.Duration(s.mono.Load())
	t.wall = time.Duration(s.wall.Load())
	return t
}

// Instant is a point in time on both clocks. Take one with [Lease.Now] or [Now].
type Instant struct {
	mono time.Duration
	wall time.Duration
}

var started = time.Now()

// Now returns the present instant, for a request that is sent before there is a lease, such as
// the one that opens the session.
func Now() Instant {
	t := time.Now()
	return Instant{mono: t.Sub(started), wall: time.Duration(t.UnixNano())}
}

// since returns how much time has passed from u to t by the clock that says more.
func (t Instant) since(u Instant) time.Duration {
	return max(t.mono-u.mono, t.wall-u.wall)
}

func (t Instant) add(d time.Duration) Instant {
	return Instant{mono: t.mono + d, wall: t.wall + d}
}

// Sub returns the time from u to t by the monotonic clock, for spacing requests; the lease
// itself judges by both clocks.
func (t Instant) Sub(u Instant) time.Duration { return t.mono - u.mono }

// NewLease returns a lease of the given term that counts from the instant at which the request
// that opened the session was sent. It holds a timer until it ends: call [Lease.End] when the
// session is closed.
func NewLease(term time.Duration, from Instant) *Lease {
	return newLease(term, from, Now)
}

func newLease(term time.Duration, from Instant, clock func() Instant) *Lease {
	l := &Lease{term: term, done: make(chan struct{})}
	l.clock.Store(&clock)
	l.from.set(from)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = l.Now()
	if left := l.left(); left > 0 {
		l.timer = time.AfterFunc(l.nap(left), l.tick)
	} else {
		l.expire()
	}
	return l
}

// Now returns the present instant. Take it before sending the request whose answer will renew
// the lease.
func (l *Lease) Now() Instant { return (*l.clock.Load())() }

// Begin is Err and Now in one, for a request that is about to be sent.
func (l *Lease) Begin() (Instant, error) {
	now := l.Now()
	return now, l.at(now)
}

// at returns the error at that instant.
func (l *Lease) at(now Instant) error {
	if !l.over.Load() && now.since(l.from.get()) < l.term {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && now.since(l.from.get()) >= l.term {
		l.expire()
	}
	return l.err
}

// Renew counts the lease from sent, the sending time of a request that the store is known to
// have counted for the session. An earlier instant than the one it counts from changes nothing.
// It reports whether the lease runs: one that has run out meanwhile, noticed or not, stays so.
func (l *Lease) Renew(sent Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check() != nil {
		return false
	}
	l.renewed = l.Now()
	if sent.mono > l.from.get().mono {
		l.from.set(sent)
	}
	return true
}

// Hold makes the lease count from an instant, which may be earlier than the one
// that it counts from. It is for a store whose proofs are of two kinds: a weak
// one is enough for a session that owns nothing, and only a strong one for a
// session that owns a node. A driver whose lease counts from a weak proof calls
// Hold with the latest strong one before it returns the session's first node.
//
// If less than least of the term would be left, Hold changes nothing and returns
// an error that matches [ErrUnavailable]. If the lease has ended, the error is
// that of Err.
func (l *Lease) Hold(from Instant, least time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	if left := l.term - l.Now().since(from); left <= 0 || left < least {
		return fmt.Errorf("%w: the lease would end in %v", ErrUnavailable, max(left, 0).Round(time.Millisecond))
	}
	l.from.set(from)
	l.timer.Reset(l.nap(l.left())) // the timer may sleep for longer than is left now
	return nil
}

// End ends the lease now and says why: the store said that the session is over, or it was
// closed. Only the first end counts; it stops the timer.
func (l *Lease) End(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.end(cause)
	}
}

// Done returns a channel that closes when the lease ends. A process that was paused, or whose
// machine slept, may see it close late; Err tells the truth at once.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err looks at the clocks. It returns nil while the lease runs and after that, for ever, an
// error that matches [ErrSessionEnded] and the cause given to End. Once Err has returned an
// error, Done is closed.
func (l *Lease) Err() error { return l.at(l.Now()) }

// Term returns how long the lease runs without renewal.
func (l *Lease) Term() time.Duration { return l.term }

// Everything below is called with mu held.

func (l *Lease) left() time.Duration { return l.term - l.Now().since(l.from.get()) }

// check ends a lease that has run out.
func (l *Lease) check() error {
	if l.err == nil && l.left() <= 0 {
		l.expire()
	}
	return l.err
}

func (l *Lease) expire() {
	now := l.Now()
	ago := func(t Instant) time.Duration { return now.since(t).Round(time.Millisecond) }
	l.end(fmt.Errorf("the lease ran out: no answer has renewed it for %v, and the request that it counts from was sent %v ago",
		ago(l.renewed), ago(l.from.get())))
}

func (l *Lease) end(cause error) {
	switch {
	case cause == nil:
		l.err = ErrSessionEnded
	case errors.Is(cause, ErrSessionEnded):
		l.err = cause
	default:
		l.err = fmt.Errorf("%w: %w", ErrSessionEnded, cause)
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	l.over.Store(true) // who sees it waits for mu
	close(l.done)
}

// nap is how long the timer sleeps before it looks at the clocks again. It is at most a quarter
// of the term, because a timer does not count the time that the machine sleeps.
func (l *Lease) nap(left time.Duration) time.Duration {
	return min(left, max(l.term/4, time.Millisecond))
}

// tick runs on the timer. A renewal does not touch the timer, so that it costs nothing: the
// timer finds out here.
func (l *Lease) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check() == nil {
		l.timer.Reset(l.nap(l.left()))
	}
}

func init() {
	leasehook.Skew = func(lease any, d time.Duration) {
		l := lease.(*Lease)
		l.mu.Lock()
		defer l.mu.Unlock()
		clock := *l.clock.Load()
		skewed := func() Instant { return clock().add(d) }
		l.clock.Store(&skewed)
	}
}
