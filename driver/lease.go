package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock/internal/leasehook"
)

// Lease judges how long a session lasts, by the clocks of this process. It
// implements rule 8 for a driver whose store drops a session that it has not
// heard of for the session's timeout.
//
// The store counts the timeout from the instant at which a request reaches it,
// which is never before the request was sent. So a lease counts from the sending
// time of a request of which a reply has proved that the store counted it. The
// term of the lease is shorter than the timeout by a margin, for the drift of
// two clocks. When the term has passed, the lease has ended for good: a reply
// that arrives later cannot revive it. (The argument is that of Gray and
// Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File
// Cache Consistency", 1989.)
//
// A lease begins to count with the first request that counts, usually the one
// that opens the session. Until then it does not run: Err returns nil, Done is
// open, and there is no timer.
//
//	lease := driver.NewLease(timeout, 0)
//	ended := lease.Do(func() bool { err = open(ctx); return err == nil })
//	...
//	go lease.Keep(func(ctx context.Context) bool { return ping(ctx) == nil })
//
// Time is read from the monotonic and from the wall clock, and the one by which
// more time has passed is believed: the monotonic clock may stand still while a
// machine sleeps, and the wall clock may be set back. A wall clock that is set
// forward by more than what is left of the term ends the lease early, which is
// safe.
//
// A Lease is safe for use by many goroutines. No method blocks, except that Do
// waits for its request and Keep for the end of the lease.
type Lease struct {
	timeout time.Duration // of the session, in the store
	term    time.Duration
	clock   atomic.Pointer[func() Instant]
	ended   context.Context // ends with the lease; its cause is err
	cancel  context.CancelCauseFunc
	done    <-chan struct{} // that of ended

	// These are read all the time, without the mutex. They are written under mu.
	begun atomic.Bool // from is set
	from  start
	over  atomic.Bool // err is set, and done is closed before mu is free

	mu      sync.Mutex
	timer   *time.Timer // nil until the lease has begun
	renewed Instant     // when Renew or CountFrom was called last, for the error
	err     error
}

// start is the Instant that a lease counts from. A goroutine that reads it while
// it moves on may see the new wall clock with the old monotonic one, by which
// the lease has less left. It never sees the reverse, by which the lease would
// have more left if the wall clock was set back.
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

// Now returns the present instant, for a request that is sent before there is a
// lease, because the store's answer gives the session timeout. Pass it to
// [Lease.Renew] then.
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

// NewLease returns a lease for a session that the store drops when it has not
// heard of it for timeout. The term of the lease is timeout less margin. A margin
// of zero stands for a quarter of the timeout.
//
// The lease begins to count with the first request that counts: see
// [Lease.Do], [Lease.Keep] and [Lease.Renew]. From then on it holds a timer until it
// ends, so call [Lease.End] when the session is closed.
//
// If the margin is negative, or not below the timeout, no term is safe. The
// lease has then ended already, and Err gives both values. There is no panic,
// because a timeout often comes from the store.
func NewLease(timeout, margin time.Duration) *Lease {
	return newLease(timeout, margin, Now)
}

func newLease(timeout, margin time.Duration, clock func() Instant) *Lease {
	if margin == 0 {
		margin = timeout / 4
	}
	l := &Lease{timeout: timeout, term: timeout - margin}
	l.ended, l.cancel = context.WithCancelCause(context.Background())
	l.done = l.ended.Done()
	l.clock.Store(&clock)
	if margin < 0 || l.term <= 0 {
		l.End(fmt.Errorf("no lease can keep a margin of %v to a session timeout of %v", margin, timeout))
	}
	return l
}

// Now returns the present instant. Take it before the request is sent whose
// answer will renew the lease; [Lease.Do] does both.
func (l *Lease) Now() Instant { return (*l.clock.Load())() }

// Do makes a request that may renew the lease. It takes the instant before the
// call of request, and counts the lease from it if request returns true: the
// store has answered, and the answer proves that the store counted this request
// for the session.
//
// Do returns the error of the lease after the request, which is nil while the
// lease runs or has not begun. If the lease had ended before, request is not
// called. If the answer came after the term had passed, the lease has ended: a
// first request counts, too, only if it is answered within the term. If request
// panics, the panic goes on and the lease stays as it was.
func (l *Lease) Do(request func() (counted bool)) error {
	sent := l.Now()
	if err := l.at(sent); err != nil {
		return err
	}
	if request() {
		l.Renew(sent)
	}
	return l.Err()
}

// maxBeats is how many beats of Keep may be in flight: those of one timeout. The
// answer to an older one could not renew the lease.
const maxBeats = 8

// Keep renews the lease until it ends. It calls beat, which sends a heartbeat
// and waits for the answer, once every eighth of the timeout, for the first time
// an eighth after the call of Keep. The result of beat means what it means for
// [Lease.Do]. Keep returns when the lease has ended and every beat has returned,
// so a driver calls it on a goroutine of its own, and waits for that in Close.
//
// Beats overlap: each runs on a goroutine of its own, and none waits for the
// answer to another. So they may reach the store in any order. This is safe
// where the store counts the timeout from the arrival of the heartbeat, but not
// where the heartbeat carries an instant that replaces a later one.
//
// The ctx of a beat ends after a quarter of the timeout, or with the lease. Then
// the cause of ctx is the lease's error. A beat that ignores ctx delays the
// return of Keep. While eight beats are in flight, no other one begins. Heartbeats
// that were missed, because the process was paused, are not made up for.
//
// A panic in beat ends the process, as in any other goroutine.
func (l *Lease) Keep(beat func(ctx context.Context) (counted bool)) {
	var beats errgroup.Group
	beats.SetLimit(maxBeats)
	defer func() { _ = beats.Wait() }() // beats return no error
	ticker := time.NewTicker(max(l.timeout/8, 1))
	defer ticker.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-ticker.C:
			beats.TryGo(func() error {
				ctx, cancel := context.WithTimeout(l.ended, l.timeout/4)
				defer cancel()
				_ = l.Do(func() bool { return beat(ctx) }) // the next tick sees the end
				return nil
			})
		}
	}
}

// Context returns a context that ends with the lease. Its cause is then the
// error that [Lease.Err] returns, while its Err is context.Canceled. Like Done,
// it may end late after the process was paused. It has no values and no
// deadline. The CancelFunc ends the context earlier and frees it: a context that
// is not cancelled is kept until the lease ends.
func (l *Lease) Context() (context.Context, context.CancelFunc) {
	_ = l.Err() // a lease that has run out ends here
	return context.WithCancel(l.ended)
}

// at returns the error at that instant.
func (l *Lease) at(now Instant) error {
	if !l.over.Load() && l.leftAt(now) > 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && l.leftAt(now) <= 0 {
		l.expire()
	}
	return l.err
}

// leftAt returns how much of the term is left at that instant. It needs no mutex.
func (l *Lease) leftAt(now Instant) time.Duration {
	if !l.begun.Load() {
		return l.term
	}
	return l.term - now.since(l.from.get())
}

// Renew counts the lease from sent, the sending time of a request that the store
// is known to have counted for the session. The first call begins the count. After
// that, an earlier instant than the one that the lease counts from changes
// nothing. Renew reports whether the lease runs: one that has run out stays so,
// whether or not that was noticed before.
func (l *Lease) Renew(sent Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check() != nil {
		return false
	}
	l.renewed = l.Now()
	if !l.begun.Load() {
		l.begin(sent)
		return l.check() == nil
	}
	if sent.mono > l.from.get().mono {
		l.from.set(sent)
	}
	return true
}

// CountFrom makes the lease count from an instant, which may be earlier than the
// one that it counts from. It is for a store whose proofs are of two kinds: a
// weak one is enough for a session that owns nothing, and only a strong one for a
// session that owns a node. A driver whose lease counts from a weak proof calls
// CountFrom with the latest strong one before it returns the session's first
// node. A lease that has not begun begins with it.
//
// If less than least of the term would be left, CountFrom changes nothing and
// returns an error that matches [ErrUnavailable]. If the lease has ended, the
// error is that of Err.
func (l *Lease) CountFrom(from Instant, least time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	if left := l.term - l.Now().since(from); left <= 0 || left < least {
		return fmt.Errorf("%w: the lease would end in %v", ErrUnavailable, max(left, 0).Round(time.Millisecond))
	}
	if !l.begun.Load() {
		l.renewed = l.Now()
		l.begin(from)
		return nil
	}
	l.from.set(from)
	l.timer.Reset(l.nap(l.left())) // the timer may sleep for longer than is left now
	return nil
}

// End ends the lease now and says why: the store said that the session is over,
// or it was closed. It may be called before the lease has begun. Only the first
// end counts; it stops the timer and ends every context of [Lease.Context].
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

// Err looks at the clocks. It returns nil while the lease runs, or has not begun,
// and after that, for ever, an error that matches [ErrSessionEnded] and the cause
// given to End. Once Err has returned an error, Done is closed.
func (l *Lease) Err() error { return l.at(l.Now()) }

// Term returns how long the lease runs without renewal.
func (l *Lease) Term() time.Duration { return l.term }

// Everything below is called with mu held.

// begin starts the count and the timer.
func (l *Lease) begin(from Instant) {
	l.from.set(from)
	l.begun.Store(true)
	l.timer = time.AfterFunc(l.nap(l.left()), l.tick)
}

func (l *Lease) left() time.Duration { return l.leftAt(l.Now()) }

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
	l.over.Store(true) // a goroutine that sees it waits for mu
	l.cancel(l.err)    // closes done
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
