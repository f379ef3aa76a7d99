package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dlock-go/dlock/internal/leasehook"
)

// Lease is the time for which a session surely lives, by the clocks of this
// process. It implements rule 8 for a driver whose store drops a session that it
// has not heard from for the session timeout.
//
// The store counts the timeout from the instant at which a request reaches it. That
// instant is never before the request was sent. So a lease counts from the sending
// time of a request, once a reply has proved that the store counted this request
// for the session. The term of the lease is shorter than the timeout by a margin,
// because the clocks of the store and of this process may drift apart. When the
// term has passed, the lease has ended for good. A reply that arrives later does
// not revive it. (See Gray and Cheriton, "Leases: An Efficient Fault-Tolerant
// Mechanism for Distributed File Cache Consistency", 1989.)
//
// A lease begins with the first request that counts. That is usually the request
// that opens the session. Until then the lease does not run: Err returns nil, the
// channel of Done is open, and there is no timer.
//
//	lease := driver.NewLease(timeout, 0)
//	err := lease.Begin(func() error { return open(ctx) })
//	...
//	go lease.Keep(ping) // ping sends a heartbeat and waits for the answer
//
// A lease reads the monotonic and the wall clock. From each reading to the next it
// counts the time of the clock on which more has passed, because the monotonic clock
// may stand still while a machine sleeps, and the wall clock may be set back. So time
// once counted stays counted, and a wall clock that is set back hides a sleep only if
// nothing reads the clocks between the two. While the machine runs, they are read at
// least four times in a term. If the wall clock is set forward by more than the rest
// of the term, the lease ends early, which is safe.
// If both stand still, as in a virtual machine that is paused, a lease cannot see it.
//
// A Lease is safe for use by many goroutines. No method blocks, except that Begin
// and Do wait for their request and Keep for the end of the lease.
type Lease struct {
	timeout time.Duration // the session timeout in the store
	term    time.Duration // the time for which the lease runs without a renewal
	clock   atomic.Pointer[func() Instant]
	ended   context.Context // ends with the lease; its cause is err
	cancel  context.CancelCauseFunc
	done    <-chan struct{} // the channel of ended

	// These fields are written with mu held, and read without it, because they are
	// read in every request.
	begun atomic.Bool  // whether the field from is set
	from  atomic.Int64 // Instant.counted of the instant from which the lease counts
	over  atomic.Bool  // whether the field err is set; the goroutine that sets it closes done before it unlocks mu

	mu      sync.Mutex
	timer   *time.Timer // nil until the lease has begun
	renewed Instant     // when the lease began or was last renewed; for the text of the error
	failure error       // the last argument of Failed since then; for the text of the error
	err     error
}

// Instant is a point in time. [Now] and [Lease.Now] return one.
type Instant struct {
	mono    time.Duration // on the monotonic clock
	counted time.Duration // on the clock that leases go by; the zero Instant is in 1970
}

// Now returns the present instant. It is for a driver that learns the session
// timeout only from the store's first answer, and so sends that request before it
// has a lease. The driver passes the instant to [Lease.Renew] afterwards.
func Now() Instant { return processClock.now() }

var processClock = newClock(func() func() (mono, wall time.Duration) {
	started := time.Now()
	return func() (mono, wall time.Duration) {
		t := time.Now()
		return t.Sub(started), time.Duration(t.UnixNano())
	}
}())

// clock makes instants of readings of two clocks. Between two readings it advances
// by the difference on the clock that has advanced more.
type clock struct {
	read func() (mono, wall time.Duration)

	mu   sync.Mutex // held to replace skew
	skew atomic.Pointer[skew]
}

// skew is what a clock adds to the monotonic clock. It never changes.
type skew struct {
	wall  time.Duration // how far the wall clock was ahead of the monotonic clock
	added time.Duration // the sum of all advances of wall
}

// tolerance is how far the skew may change unnoticed. A clock would otherwise count
// the time between the readings of the two clocks, again and again.
const tolerance = time.Millisecond

func newClock(read func() (mono, wall time.Duration)) *clock {
	c := &clock{read: read}
	mono, wall := read()
	c.skew.Store(&skew{wall: wall - mono, added: wall - mono})
	return c
}

func (c *clock) now() Instant {
	// The skew is loaded after the reading, so that it has what earlier readings
	// have added.
	mono, wall := c.read()
	s := c.skew.Load()
	if (wall - mono - s.wall).Abs() > tolerance {
		mono, s = c.readAgain()
	}
	return Instant{mono: mono, counted: mono + s.added}
}

// readAgain reads the clocks with mu held. A reading made before another goroutine
// has replaced the skew would look like a step of the wall clock.
func (c *clock) readAgain() (mono time.Duration, s *skew) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mono, wall := c.read()
	s = c.skew.Load()
	if advance := wall - mono - s.wall; advance.Abs() > tolerance {
		s = &skew{wall: wall - mono, added: s.added + max(advance, 0)}
		c.skew.Store(s)
	}
	return mono, s
}

func (t Instant) add(d time.Duration) Instant {
	return Instant{mono: t.mono + d, counted: t.counted + d}
}

// since returns how much of the term of a lease has passed from u to t.
func (t Instant) since(u Instant) time.Duration { return t.counted - u.counted }

// Sub returns the time from u to t on the monotonic clock. It is for spacing out
// requests. The lease itself goes by both clocks.
func (t Instant) Sub(u Instant) time.Duration { return t.mono - u.mono }

// NewLease returns a lease for a session that the store drops when it has not
// heard from it for timeout. The term of the lease is timeout minus margin. A
// margin of zero stands for a quarter of the timeout.
//
// The lease begins with the first request that counts: see [Lease.Do],
// [Lease.Keep] and [Lease.Renew]. From then until its end it holds a timer. So a
// driver calls [Lease.End] when the session is closed.
//
// If the margin is negative, or not less than the timeout, no term is safe. Then
// NewLease returns a lease that has ended, and the error of Err gives both values.
// It does not panic, because a timeout often comes from the store.
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
		l.End(fmt.Errorf("no lease is safe with a margin of %v and a session timeout of %v", margin, timeout))
	}
	return l
}

// Now returns the present instant. It is for a driver that calls [Lease.Renew]
// later: such a driver calls Now before it sends the request. [Lease.Do] makes
// both calls itself.
func (l *Lease) Now() Instant { return (*l.clock.Load())() }

// Begin makes the request that opens the session, and counts the lease from the time
// before the call of request. The function request returns nil under the condition
// that [Lease.Do] gives.
//
// Begin returns the error of request. If request returned nil, but its answer came
// after the term had passed, the lease has ended. Then the error matches
// [ErrUnavailable] and not [ErrSessionEnded], because Connect fails with it: there was
// no session yet, and another call may succeed. If the lease had ended before, Begin
// returns the error of the lease and does not call request.
func (l *Lease) Begin(request func() error) error {
	answered := false
	err := l.Do(func() error {
		err := request()
		answered = err == nil
		return err
	})
	if err != nil && answered {
		return fmt.Errorf("%w: the answer came too late: %v", ErrUnavailable, err)
	}
	return err
}

// Do makes a request that may renew the lease. It reads the clocks, calls request,
// and, if request returns nil, counts the lease from the time before the call. The
// function request returns nil only if the store has answered, and if the answer
// proves that the store counted this request for the session.
//
// If the lease has ended by the time request returns, Do returns the error of the
// lease. Otherwise Do returns the error of request, and the lease runs or has not
// begun. If the lease had ended before, Do does not call request. If the answer came
// after the term had passed, the lease has ended. If request panics, so does Do, and
// the lease is not renewed.
func (l *Lease) Do(request func() error) error {
	sent := l.Now()
	if err := l.at(sent); err != nil {
		return err
	}
	err := request()
	if err == nil {
		l.Renew(sent)
	} else {
		l.Failed(err)
	}
	return cmp.Or(l.Err(), err)
}

// Failed keeps the error of a request that has not renewed the lease. If the lease
// runs out before the next renewal, the text of its error also has the text of the
// last such error, which tells users why their session has ended. The error of the
// lease does not match that error. Do and Keep call Failed themselves.
func (l *Lease) Failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// maxBeats is the maximum number of heartbeats in flight: as many as Keep
// begins within one timeout. A heartbeat that has been in flight for longer
// than that could not renew the lease.
const maxBeats = 8

// Keep renews the lease until the lease ends. Every eighth of the timeout it calls
// beat, for the first time an eighth after the call of Keep. The function beat
// sends a heartbeat and waits for the answer. It returns nil under the condition
// that [Lease.Do] gives for request.
//
// Keep returns when the lease has ended and every call of beat has returned. So a
// driver calls Keep on a goroutine of its own, and Close waits for that goroutine.
//
// Heartbeats overlap: each call of beat runs on a goroutine of its own, and does
// not wait for the answer to another one. So heartbeats may reach the store in any
// order. This is safe if the store counts the timeout from the arrival of a
// heartbeat. It is not safe if a heartbeat carries an instant that replaces a
// later one.
//
// The ctx of beat ends after a quarter of the timeout, or when the lease ends. In
// the second case its cause is the error of the lease. A beat that ignores ctx
// delays the return of Keep. While eight calls of beat are running, Keep begins no
// other one. After a pause of the process, Keep does not make up for the
// heartbeats that it has missed.
//
// A panic in beat ends the process, as in any other goroutine.
func (l *Lease) Keep(beat func(ctx context.Context) error) {
	var beats errgroup.Group
	beats.SetLimit(maxBeats)
	defer func() { _ = beats.Wait() }() // the functions of the group return no error
	ticker := time.NewTicker(max(l.timeout/8, 1))
	defer ticker.Stop()
	for {
		select {
		case <-l.done:
			return
		case <-ticker.C:
			beats.TryGo(func() error {
				_ = l.Do(func() error { return l.limit(beat) }) // the loop notices the end of the lease
				return nil
			})
		}
	}
}

// limit calls beat with the context that Keep describes.
func (l *Lease) limit(beat func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.ended, l.timeout/4)
	defer cancel()
	err := beat(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("a heartbeat got no answer within %v: %w", l.timeout/4, err)
	}
	return err
}

// Context returns a context that ends when the lease ends. Its Err is then
// context.Canceled, and its cause is the error of [Lease.Err]. After a pause of the
// process the context may end late, like Done. It has no values and no deadline.
// The CancelFunc ends the context earlier and frees it. A context that is not
// cancelled is kept until the lease ends.
func (l *Lease) Context() (context.Context, context.CancelFunc) {
	_ = l.Err() // ends the lease if it has run out
	return context.WithCancel(l.ended)
}

// at returns the error of the lease at that instant.
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

// leftAt returns the rest of the term at that instant. It does not need mu.
func (l *Lease) leftAt(now Instant) time.Duration {
	if !l.begun.Load() {
		return l.term
	}
	return l.term - now.since(l.start())
}

// start returns the instant from which the lease counts, without its monotonic time.
func (l *Lease) start() Instant { return Instant{counted: time.Duration(l.from.Load())} }

// Renew counts the lease from sent, the sending time of a request. The driver
// must know that the store counted this request for the session. The first call
// begins the lease. After that, Renew ignores an instant before the one from
// which the lease counts.
//
// Renew reports whether the lease runs. It does not revive a lease whose term has
// passed, even if no method has noticed that before.
func (l *Lease) Renew(sent Instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check() != nil {
		return false
	}
	l.renewed, l.failure = l.Now(), nil
	if !l.begun.Load() {
		l.begin(sent)
		return l.check() == nil
	}
	if sent.since(l.start()) > 0 {
		l.from.Store(int64(sent.counted))
	}
	return true
}

// CountFrom counts the lease from the given instant. Unlike in Renew, this
// instant may be earlier than the one from which the lease counts at present.
// If the lease has not begun, it begins.
//
// Some stores give two kinds of proof that they counted a request: weak proofs and
// strong ones. A weak proof is good enough while the session owns no node. A
// session that owns a node needs a strong proof. So before the driver returns the
// first node of a session, it calls CountFrom with the sending time of the latest
// request that has a strong proof.
//
// If the rest of the term would be less than least, CountFrom changes nothing and
// returns an error that matches [ErrUnavailable]. If the lease has ended, CountFrom
// returns the error of Err.
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
	l.from.Store(int64(from.counted))
	l.timer.Reset(l.untilCheck(l.left())) // the rest of the term may be shorter now, so the timer may have to fire earlier
	return nil
}

// End ends the lease at once, for example because the session was closed, or
// because the store has said that it does not know the session. The error of Err
// then matches cause. End stops the timer and ends every context of
// [Lease.Context]. It may be called before the lease has begun. If the lease has
// ended before, End does nothing.
func (l *Lease) End(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.end(cause)
	}
}

// Done returns a channel that closes when the lease ends. If the process was paused
// or the machine slept, the channel may close late, but Err reports the end at
// once.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err reads the clocks. It returns nil while the lease has not begun and while it
// runs. After that it always returns an error that matches [ErrSessionEnded], and
// the cause that End was given. When Err has returned an error, Done is closed.
func (l *Lease) Err() error { return l.at(l.Now()) }

// Term returns the time for which the lease runs without a renewal.
func (l *Lease) Term() time.Duration { return l.term }

// The caller of a method below holds mu. There is one exception: tick locks mu
// itself.

func (l *Lease) begin(from Instant) {
	l.from.Store(int64(from.counted))
	l.begun.Store(true)
	l.timer = time.AfterFunc(l.untilCheck(l.left()), l.tick)
}

func (l *Lease) left() time.Duration { return l.leftAt(l.Now()) }

// check ends the lease if its term has passed, and returns the error of the lease.
func (l *Lease) check() error {
	if l.err == nil && l.left() <= 0 {
		l.expire()
	}
	return l.err
}

func (l *Lease) expire() {
	now := l.Now()
	ago := func(t Instant) time.Duration { return now.since(t).Round(time.Millisecond) }
	text := fmt.Sprintf("the lease ran out: no answer has renewed it for %v, and the request that it counts from was sent %v ago",
		ago(l.renewed), ago(l.start()))
	if l.failure != nil {
		text += "; the last failure: " + l.failure.Error()
	}
	l.end(errors.New(text))
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
	// A method that reads over as true waits for mu before it returns the error.
	// So done is closed by then.
	l.over.Store(true)
	l.cancel(l.err) // closes done
}

// untilCheck returns the time until the timer checks the clocks again. It is at
// most a quarter of the term, because a timer does not count the time for which
// the machine sleeps.
func (l *Lease) untilCheck(left time.Duration) time.Duration {
	return min(left, max(l.term/4, time.Millisecond))
}

// tick runs when the timer fires. A renewal does not reset the timer, which saves
// time in every request. So tick sets the timer again if the lease still runs.
func (l *Lease) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check() == nil {
		l.timer.Reset(l.untilCheck(l.left()))
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
