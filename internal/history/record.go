package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// span is the time of a call, in ticks of the recorder's logical clock.
type span struct{ call, ret int64 }

func (s span) overlaps(o span) bool { return s.call <= o.ret && o.call <= s.ret }

const forever = math.MaxInt64

// client is a lock client. When it is closed, a new client takes over its slot
// in the history.
type client struct {
	slot   int
	locks  *dlock.Client
	closed *ending
}

type attempt struct {
	span
	actor   int
	client  *client
	queue   string
	mode    dlock.Mode
	units   int // 0 for a read-write lock
	try     bool
	limited bool    // whether the call has a deadline
	within  *handle // Lock whose context was passed, or nil
	synced  int64   // client knows all changes until then; 0: unknown

	campaign bool          // whether the call is Election.Campaign
	tick     time.Time     // argument of Once; zero for other calls
	unlock   func() error  // ends Once; nil for other calls
	limit    time.Duration // until cancellation or timeout; 0 for none

	began   time.Time
	ended   time.Time
	before  dlock.Mode // re-entry: mode before the call; 0 if lost
	via     *handle    // second Lock whose context was passed, or nil
	kept    bool       // re-entry: within and via were held afterwards
	queued  []placed
	retried bool  // its own earlier node may block it
	gaveUp  int64 // tick of its context's cancellation, or 0
	got     *handle
	err     error
}

// placed is a node that an attempt has created, at some time within the span.
type placed struct {
	span
	token int64
}

// contender records a call that was granted the lock. Its handles are the first
// Lock and the re-entries.
type contender struct {
	id      int
	client  *client
	queue   string
	mode    dlock.Mode // as granted; a downgrade does not change it
	units   int        // 0 for a read-write lock
	token   int64
	node    string
	granted span
	handles []*handle
	refused []span // re-entries refused as upgrades
	learned int64  // tick when the loss was noticed, or 0
}

type handle struct {
	*contender
	number  int // 0 for the first Lock; re-entries count up
	actor   int
	mode    dlock.Mode
	lock    *dlock.Lock
	unlock  func() error // called in place of lock.Unlock unless nil
	entered span
	answers []seen
	lowered []*ending // calls of Downgrade
	given   *ending   // the call of Unlock, if any
}

func (h *handle) String() string {
	return fmt.Sprintf("actor %d, #%d.%d of %s (%s, token %d)", h.actor, h.id, h.number, h.queue, h.lock.Node(), h.token)
}

// seen is an observation that a Lock was held, in the given mode.
type seen struct {
	span
	actor int
	mode  dlock.Mode
}

// ending is a call that ends a hold: Unlock, Downgrade or [dlock.Client.Close].
type ending struct {
	span
	at  time.Time // wall clock at the return of the call
	err error
}

func (e *ending) over() int64 {
	if e == nil {
		return forever
	}
	return e.ret
}

// cause is an event that can take locks away, such as a fault or an operator's
// removal.
type cause struct {
	span
	what  string
	slot  int    // affected client's slot, or -1 for all
	queue string // affected queue; "": all
	node  string // affected node (see nodeOf); "": all
	told  bool   // the holder must notice before another grant
	upTo  int64  // highest token in a removed queue, or 0
}

// sudden reports whether the cause is the removal of a whole queue at one
// instant, so that all losses it explains happened at that instant.
func (c cause) sudden() bool { return c.upTo > 0 && c.ret == c.call+1 }

// may reports whether c can have cost h the lock by end. If c.told is set, the
// loss may follow much later.
func (c cause) may(h *contender, end int64) bool {
	switch {
	case c.slot >= 0 && c.slot != h.client.slot, c.queue != "" && c.queue != h.queue, c.node != "" && c.node != h.node:
		return false
	case c.told:
		return c.call <= end
	}
	return c.overlaps(span{h.granted.call, end})
}

// leftAt returns when the contender's last Lock was unlocked. The result clean
// tells whether its node was certainly gone from the store by then.
func (c *contender) leftAt() (at int64, clean bool) {
	clean = !slices.ContainsFunc(c.handles, func(h *handle) bool { return h.given == nil || h.given.err != nil })
	return c.givenBack(), clean
}

// ended returns the wall-clock time at which the contender's last Unlock
// returned. It returns zero if a Lock was not unlocked.
func (c *contender) ended() (at time.Time) {
	for _, h := range c.handles {
		switch {
		case h.given == nil || h.given.ret == forever:
			return time.Time{}
		case h.given.at.After(at):
			at = h.given.at
		}
	}
	return at
}

// nodeOf returns a node name that survives the renaming after a downgrade or a
// grant of units.
func nodeOf(name string) string { return strings.NewReplacer("-W-", "-R-", "-S", "-H").Replace(name) }

// watcher is notified of calls while they run.
type watcher interface {
	calling(ctx context.Context, a *attempt) context.Context
	// granted is called in the goroutine of a call that was granted h, before
	// the call returns. ctx is the context of the call.
	granted(ctx context.Context, h *handle)
	returned(a *attempt)
	// leaving is called before an Unlock, and left after it.
	leaving(h *handle) (left func(err error))
	downgraded(h *handle)
}

type recorder struct {
	// watch checks the calls; may be nil. With a watch, ask never calls Err,
	// because Lost must close without that.
	watch watcher

	mu         sync.Mutex
	clock      int64
	attempts   []*attempt
	contenders []*contender
	live       []*handle // Locks that may still be held
	causes     []cause
	empty      map[string][]int64 // by queue: ticks when it was empty
	// lagging is set for an ensemble. A server may then lag behind the others
	// and refuse a try although the lock is free.
	lagging bool
	// grace is how long a node may outlive the call that made it; 0 if unknown.
	grace time.Duration
}

func (r *recorder) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next()
}

// next advances the logical clock. The caller holds mu.
func (r *recorder) next() int64 {
	r.clock++
	return r.clock
}

// cause calls the function play, which injects a fault, and records the fault.
// play returns false if the fault may still take effect later.
func (r *recorder) cause(c cause, play func() (over bool)) {
	end := r.begin(c)
	if play() {
		end()
	}
}

// done turns f into an argument of cause, for a fault that is over when f
// returns.
func done(f func()) func() bool {
	return func() bool {
		f()
		return true
	}
}

// begin records that a fault begins. It can explain losses until end is called,
// and later ones if c.told is set.
func (r *recorder) begin(c cause) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.call, c.ret = r.next(), forever
	i := len(r.causes)
	r.causes = append(r.causes, c)
	return func() { r.note(func() { r.causes[i].ret = r.next() }) }
}

func (r *recorder) settled(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.empty == nil {
		r.empty = make(map[string][]int64)
	}
	r.empty[queue] = append(r.empty[queue], r.next())
}

// take records a call. After a grant, it asks the queue's other Locks, which
// must know by then if they are lost.
func (r *recorder) take(ctx context.Context, a *attempt, call func() (*dlock.Lock, error)) *handle {
	r.mu.Lock()
	a.call, a.ret = r.next(), forever
	r.attempts = append(r.attempts, a)
	r.mu.Unlock()
	a.before = r.strongest(a)
	l, err := call()
	now := time.Now()
	a.kept = r.strongest(a) != 0 && (a.via == nil || a.via.lock.Err() == nil)
	r.mu.Lock()
	a.ret, a.ended, a.err = r.next(), now, err
	var others []*handle
	if l != nil {
		others = slices.Clone(r.live)
		r.won(a, l)
	} else if a.reenters() {
		r.refused(a)
	}
	r.mu.Unlock()
	if r.watch != nil {
		if l != nil {
			r.watch.granted(ctx, a.got)
		}
		r.watch.returned(a)
		return a.got
	}
	for _, other := range others {
		if other.queue == a.queue {
			r.ask(a.actor, other)
		}
	}
	return a.got
}

func (a *attempt) reenters() bool { return a.within != nil && a.within.queue == a.queue }

func (r *recorder) strongest(a *attempt) (mode dlock.Mode) {
	if !a.reenters() {
		return 0
	}
	var handles []*handle
	r.note(func() { handles = slices.Clone(a.within.handles) })
	for _, h := range handles {
		if m := h.lock.Mode(); h.lock.Err() == nil {
			mode = max(mode, m)
		}
	}
	return mode
}

func (r *recorder) current(actor int) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range slices.Backward(r.attempts) {
		if a.actor == actor && a.ret == forever {
			return a
		}
	}
	return nil
}

// won records the grant of l to a, as a re-entry or a new contender. The caller
// holds mu.
func (r *recorder) won(a *attempt, l *dlock.Lock) {
	var c *contender
	if a.reenters() && l.Token() == a.within.token {
		c = a.within.contender
	} else {
		c = &contender{
			id: len(r.contenders) + 1, client: a.client, queue: a.queue, mode: a.mode, units: a.units,
			token: l.Token(), node: nodeOf(l.Node()), granted: a.span,
		}
		r.contenders = append(r.contenders, c)
	}
	a.got = &handle{contender: c, number: len(c.handles), actor: a.actor, mode: a.mode, lock: l, unlock: a.unlock, entered: a.span}
	c.handles = append(c.handles, a.got)
	r.live = append(r.live, a.got)
}

// refused records what the error of a re-entry shows about the lock. The caller
// holds mu.
func (r *recorder) refused(a *attempt) {
	switch c := a.within.contender; {
	case errors.Is(a.err, dlock.ErrUpgrade):
		c.refused = append(c.refused, a.span)
	case errors.Is(a.err, dlock.ErrLost):
		r.lost(c)
	}
}

// lost records that a contender has noticed that it had lost the lock. The
// caller holds mu.
func (r *recorder) lost(c *contender) {
	if c.learned == 0 {
		c.learned = r.clock
	}
	r.live = slices.DeleteFunc(r.live, func(h *handle) bool { return h.contender == c })
}

func (r *recorder) queuedAs(a *attempt, token int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := placed{span{a.call, r.next()}, token}
	if n := len(a.queued); n > 0 {
		p.call = a.queued[n-1].ret
	}
	a.queued = append(a.queued, p)
}

func (r *recorder) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) cancel(a *attempt, cancel func()) {
	r.note(func() { a.gaveUp = r.next() })
	cancel()
}

// ask reports whether a Lock is still held. With a watch, it only checks Lost.
func (r *recorder) ask(actor int, h *handle) bool {
	if r.watch != nil {
		return !isClosed(h.lock.Lost())
	}
	call := r.tick()
	mode := h.lock.Mode()
	err := h.lock.Err()
	same := h.lock.Mode() == mode
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.next()
	switch {
	case err == nil && same:
		h.answers = append(h.answers, seen{span{call, now}, actor, mode})
	case errors.Is(err, dlock.ErrLost):
		r.lost(h.contender)
	}
	return err == nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *recorder) downgrade(h *handle, call func() error) error {
	e := new(ending)
	r.note(func() { h.lowered = append(h.lowered, e) })
	err := r.end(h, e, call)
	if err == nil && r.watch != nil {
		r.watch.downgraded(h)
	}
	return err
}

func (r *recorder) unlock(h *handle) error {
	e := new(ending)
	r.note(func() { h.given = e })
	left, call := func(error) {}, h.lock.Unlock
	if r.watch != nil {
		left = r.watch.leaving(h)
	}
	if h.unlock != nil {
		call = h.unlock
	}
	err := r.end(h, e, call)
	left(err)
	r.note(func() { r.live = slices.DeleteFunc(r.live, func(o *handle) bool { return o == h }) })
	return err
}

func (r *recorder) end(h *handle, e *ending, call func() error) error {
	r.note(func() { e.call, e.ret = r.next(), forever })
	err := call()
	r.mu.Lock()
	defer r.mu.Unlock()
	e.ret, e.at, e.err = r.next(), time.Now(), err
	if errors.Is(err, dlock.ErrLost) {
		r.lost(h.contender)
	}
	return err
}

func (r *recorder) close(c *client) error {
	e := &ending{span: span{ret: forever}}
	r.note(func() { e.call, c.closed = r.next(), e })
	err := c.locks.Close()
	r.note(func() { e.ret, e.err = r.next(), err })
	for _, h := range r.held(c) {
		r.ask(closer, h) // the answer "still held" would break a rule
	}
	return err
}

func (r *recorder) held(c *client) (all []*handle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.live {
		if h.client == c {
			all = append(all, h)
		}
	}
	return all
}

// target chooses the slot of a client that a fault is to hit. It prefers
// clients that hold a lock.
func (r *recorder) target(draw *rand.Rand, slots int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) > 0 && draw.IntN(3) > 0 {
		return r.live[draw.IntN(len(r.live))].client.slot
	}
	return draw.IntN(slots)
}

// Values of Operation.Actor for operations without an actor.
const (
	closer = 0
	losses = 1000 // for a loss; the client's slot is added
)
