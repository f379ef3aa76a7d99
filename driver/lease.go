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

// Lease tracks for how long a session is certain to live, by the clocks of this
// process. It implements rule 8 for stores that drop a session when they have
// not heard from it for the session timeout.
//
// The store measures the timeout from the arrival of a request, which is never
// earlier than its sending. A lease therefore runs from the time at which a
// request was sent, once a reply has proved that the request has kept the
// session alive. The term of the lease is shorter than the timeout by a margin,
// because the clocks of the store and of this process may drift apart. When the
// term has passed, the lease has ended for good: a late reply does not revive
// it. (See Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism
// for Distributed File Cache Consistency", 1989.)
//
// A lease begins with the first such request, usually the one that opens the
// session. Until then Err returns nil, Done is open, and there is no timer.
//
//	lease := driver.NewLease(timeout, 0)
//	err := lease.Begin(func() error { return open(ctx) })
//	...
//	go lease.Run(ping) // ping sends a heartbeat and waits for the answer
//
// A lease reads the monotonic clock, which may stand still while a machine
// sleeps, and the wall clock, which may be set back. The time between two
// readings is that of the clock that has advanced more. A sleep is missed only
// if the wall clock is set back between the same two readings. While the
// machine runs, a lease reads the clocks at least four times per term.
//
// If the wall clock is set forward by more than the rest of the term, the lease
// ends early, which is safe. If both clocks stand still, as in a paused virtual
// machine, the lease cannot notice.
//
// A Lease is safe for concurrent use. No method blocks, except that Begin and
// Do wait for their request, and Run for the end of the lease.
type Lease struct {
	timeout time.Duration // the store's session timeout
	term    time.Duration // how long the lease runs without a renewal
	clock   atomic.Pointer[func() Instant]
	ended   context.Context // canceled with err when the lease ends
	cancel  context.CancelCauseFunc
	done    <-chan struct{} // ended.Done()

	// Written with mu held, but read without it, so that Err does not lock
	// mu while the lease runs.
	begun atomic.Bool  // whether from is set
	from  atomic.Int64 // the start of the current term, as Instant.counted
	over  atomic.Bool  // whether the lease has ended with err

	mu      sync.Mutex
	timer   *time.Timer // nil until the lease has begun
	renewed Instant     // latest renewal, or the beginning; for messages
	failure error       // latest failure since then; for messages
	err     error
	onRenew func(left, term time.Duration)
}

// Instant is a point in time, as returned by [Now] and [Lease.Now].
type Instant struct {
	mono    time.Duration // on the monotonic clock
	counted time.Duration // Unix time as counted by type clock
}

// Now returns the current instant. It is for drivers that learn the session
// timeout only from the store's first answer. They call Now before the first
// request, and pass the instant to [Lease.Renew] once they have a lease.
func Now() Instant { return processClock.now() }

var processClock = newClock(func() func() (mono, wall time.Duration) {
	started := time.Now()
	return func() (mono, wall time.Duration) {
		t := time.Now()
		return t.Sub(started), time.Duration(t.UnixNano())
	}
}())

// clock combines the monotonic and the wall clock. Between two readings it
// advances by whichever has advanced more.
type clock struct {
	read func() (mono, wall time.Duration)

	mu   sync.Mutex // held while replacing skew
	skew atomic.Pointer[skew]
}

// skew says how a clock differs from the monotonic clock. It is immutable.
type skew struct {
	wall  time.Duration // wall clock minus monotonic clock
	added time.Duration // combined minus monotonic clock; never decreases
}

// tolerance is the largest change of the skew that is ignored. Without it, the
// delays between the readings of the two clocks would add up.
const tolerance = time.Millisecond

func newClock(read func() (mono, wall time.Duration)) *clock {
	c := &clock{read: read}
	mono, wall := read()
	c.skew.Store(&skew{wall: wall - mono, added: wall - mono})
	return c
}

func (c *clock) now() Instant {
	// Load the skew after reading the clocks, because a skew loaded before
	// could lack an advance that another goroutine has seen meanwhile.
	mono, wall := c.read()
	s := c.skew.Load()
	if (wall - mono - s.wall).Abs() > tolerance {
		mono, s = c.readAgain()
	}
	return Instant{mono: mono, counted: mono + s.added}
}

// readAgain reads clocks and skew under c.mu, because a skew replaced in
// between would look like a step of the wall clock.
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

func (t Instant) since(u Instant) time.Duration { return t.counted - u.counted }

// Sub returns the time from u to t on the monotonic clock. It is for spacing
// out requests. The lease itself goes by both clocks.
func (t Instant) Sub(u Instant) time.Duration { return t.mono - u.mono }

// NewLease returns a lease for a session that the store drops when it has not
// heard from it for the timeout. The term of the lease is the timeout minus the
// margin. A zero margin means a quarter of the timeout.
//
// The lease begins with the first successful request: see [Lease.Do],
// [Lease.Run] and [Lease.Renew]. From then until its end it holds a timer, so
// drivers must call [Lease.End] when the session is closed.
//
// If the margin is negative, or not less than the timeout, NewLease returns a
// lease that has already ended, with an error that gives both values. It does
// not panic, because the timeout often comes from the store.
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

// Now returns the current instant, for a driver that is about to send a request
// and will call [Lease.Renew] when it is answered. [Lease.Do] makes both calls.
func (l *Lease) Now() Instant { return (*l.clock.Load())() }

// Begin is like [Lease.Do], for the request that opens the session. If the
// answer comes after the term has passed, the lease has ended. The error then
// matches [ErrUnavailable] and not [ErrSessionEnded], because another attempt
// to connect may succeed.
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

// Do calls the function request, which may renew the lease. If request returns
// nil, Do lets the lease run from the time before that call. So request must
// return nil only if the store's answer proves that it took this request as a
// sign of life of the session.
//
// Do returns the error of request, or the lease's error if the lease has ended
// by then. If the lease had already ended when Do was called, Do does not call
// request. If request panics, so does Do, and the lease is not renewed.
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

// Failed records why a request has not renewed the lease. If the lease then
// runs out, the error of Err quotes the latest such error in its text, but does
// not match it. Do and Run call Failed themselves.
func (l *Lease) Failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = err
}

// maxBeats limits the heartbeats in flight to the number that Run starts
// within one timeout. An older heartbeat could not renew the lease anyway.
const maxBeats = 8

// Run renews the lease until the lease ends. Every eighth of the timeout, but
// not at once, it calls the function beat, which sends a heartbeat and waits
// for the answer. The function must return nil only under the condition stated
// at [Lease.Do].
//
// Run returns when the lease has ended and every call of beat has returned.
// Drivers call Run on a goroutine of its own, and their Close waits for that
// goroutine.
//
// Up to eight heartbeats overlap, and may reach the store in any order. This is
// safe if the store measures the timeout from the arrival of a heartbeat. It is
// not safe if each heartbeat carries a time that the store keeps, because an
// older time could replace a newer one.
//
// The ctx of beat is done after a quarter of the timeout, or when the lease
// ends, with the lease's error as the cause. A beat that ignores ctx delays the
// return of Run. A panic in beat ends the process. After a pause of the
// process, Run does not make up for missed heartbeats.
func (l *Lease) Run(beat func(ctx context.Context) error) {
	var beats errgroup.Group
	beats.SetLimit(maxBeats)
	defer func() { _ = beats.Wait() }() // always nil
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

func (l *Lease) limit(beat func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.ended, l.timeout/4)
	defer cancel()
	err := beat(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("a heartbeat got no answer within %v: %w", l.timeout/4, err)
	}
	return err
}

// Context returns a context that is canceled when the lease ends, with the
// error of [Lease.Err] as its cause. After a pause of the process, it may be
// canceled late, as with Done. The context has no values and no deadline. The
// CancelFunc cancels and frees it earlier; otherwise it is kept until the lease
// ends.
func (l *Lease) Context() (context.Context, context.CancelFunc) {
	_ = l.Err() // ends the lease if it has run out
	return context.WithCancel(l.ended)
}

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

// leftAt does not need mu.
func (l *Lease) leftAt(now Instant) time.Duration {
	if !l.begun.Load() {
		return l.term
	}
	return l.term - now.since(l.start())
}

func (l *Lease) start() Instant { return Instant{counted: time.Duration(l.from.Load())} }

// Renew lets the lease run from sent, the time of sending a request that the
// store took as a sign of life of the session. The first call begins the lease.
// Later calls never let it run from an earlier time.
//
// Renew reports whether the lease is running. It does not revive a lease whose
// term has passed.
func (l *Lease) Renew(sent Instant) bool {
	running, left, report := l.renew(sent)
	if report != nil {
		report(left, l.term)
	}
	return running
}

// renew implements Renew, but returns the function set by OnRenew as report
// instead of calling it, because renew holds mu.
func (l *Lease) renew(sent Instant) (running bool, left time.Duration, report func(left, term time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.check() != nil {
		return false, 0, nil
	}
	l.renewed, l.failure = l.Now(), nil
	if !l.begun.Load() {
		l.begin(sent)
		return l.check() == nil, 0, nil
	}
	if sent.since(l.start()) > 0 {
		left, report = l.leftAt(l.renewed), l.onRenew
		l.from.Store(int64(sent.counted))
	}
	return true, left, report
}

// OnRenew sets the function f, which is called each time that Renew extends a
// lease that has begun, as [Inspector] describes. It replaces the function of
// an earlier call. Drivers implement Inspector.OnHeartbeat with it.
func (l *Lease) OnRenew(f func(left, term time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onRenew = f
}

// CountFrom lets the lease run from the given instant, even if that is earlier
// than the instant from which it runs now. If the lease has not begun, it
// begins.
//
// CountFrom is for stores whose answers may prove only weakly that a request
// prolonged the session. A weak proof is enough while the session owns no node.
// Before a driver returns the session's first node, it calls CountFrom with the
// sending time of the latest request with a strong proof.
//
// If the rest of the term would be shorter than the argument least, CountFrom
// changes nothing and returns an error that matches [ErrUnavailable]. If the
// lease has ended, CountFrom returns the error of Err.
func (l *Lease) CountFrom(from Instant, least time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(); err != nil {
		return err
	}
	if left := l.term - l.Now().since(from); left < least {
		return fmt.Errorf("%w: the lease would end in %v", ErrUnavailable, max(left, 0).Round(time.Millisecond))
	}
	if !l.begun.Load() {
		l.renewed = l.Now()
		l.begin(from)
		return nil
	}
	l.from.Store(int64(from.counted))
	l.timer.Reset(l.untilCheck(l.left())) // the timer may now be too late
	return nil
}

// End ends the lease at once, for example because the session was closed or the
// store does not know it. Err then returns an error that matches the cause. End
// stops the timer and cancels every context returned by [Lease.Context]. It may
// be called before the lease has begun. If the lease has ended, End is a no-op.
func (l *Lease) End(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.end(cause)
	}
}

// Done returns a channel that is closed when the lease ends. If the process was
// paused or the machine slept, the channel may be closed late, but Err reports
// the end at once.
func (l *Lease) Done() <-chan struct{} { return l.done }

// Err returns nil until the lease ends. After that, it always returns an error
// that matches [ErrSessionEnded]. The error also matches the cause passed to
// End or, if the lease has run out, [ErrExpired]. Err reads the clocks, so it
// needs no timer to notice the end. Once Err has returned an error, Done is
// closed.
func (l *Lease) Err() error { return l.at(l.Now()) }

// Term returns how long the lease runs without a renewal.
func (l *Lease) Term() time.Duration { return l.term }

// The methods below require mu to be held, except tick, which locks it.

func (l *Lease) begin(from Instant) {
	l.from.Store(int64(from.counted))
	l.begun.Store(true)
	l.timer = time.AfterFunc(l.untilCheck(l.left()), l.tick)
}

func (l *Lease) left() time.Duration { return l.leftAt(l.Now()) }

// check ends the lease if its term has passed, and returns the lease's error.
func (l *Lease) check() error {
	if l.err == nil && l.left() <= 0 {
		l.expire()
	}
	return l.err
}

func (l *Lease) expire() {
	now := l.Now()
	ago := func(t Instant) time.Duration { return now.since(t).Round(time.Millisecond) }
	text := ""
	if l.failure != nil {
		text = "; the last failure: " + l.failure.Error()
	}
	l.end(fmt.Errorf("%w: no answer has renewed it for %v, and the request that it counts from was sent %v ago%s",
		ErrExpired, ago(l.renewed), ago(l.start()), text))
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
	// No method returns err before done is closed, because the method at locks
	// mu after it has found the field over set.
	l.over.Store(true)
	l.cancel(l.err)
}

// untilCheck returns at most a quarter of the term, because timers do not count
// time spent asleep.
func (l *Lease) untilCheck(left time.Duration) time.Duration {
	return min(left, max(l.term/4, time.Millisecond))
}

// tick restarts the timer unless the lease has ended. Renewals do not restart
// it, which saves time in every request.
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
		skewed := func() Instant {
			now := clock()
			return Instant{mono: now.mono + d, counted: now.counted + d}
		}
		l.clock.Store(&skewed)
	}
}
