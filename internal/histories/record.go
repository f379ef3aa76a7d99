package histories

import (
	"errors"
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

// client is a lock client in one of the slots of a history. When a client is
// closed, a new one takes its slot.
type client struct {
	slot   int
	locks  *dlock.Client
	shared bool
	closed *ending
}

// shares returns the client's number if its actors share nodes, and 0
// otherwise.
func (c *client) shares() int {
	if !c.shared {
		return 0
	}
	return c.slot + 1
}

type attempt struct {
	span
	actor   int
	client  *client
	queue   string
	mode    dlock.Mode
	try     bool
	limited bool    // the call has a deadline
	within  *handle // the Lock that this call re-enters by its context, or nil
	synced  int64   // the client has seen every change up to this tick; 0 if unknown

	began   time.Time
	ended   time.Time
	queued  []placed
	retried bool  // a failed request may have left a node that blocks this same call
	gaveUp  int64 // when its context was cancelled, or 0
	got     *handle
	err     error
}

// placed says when an attempt got its node. The node was created at some time
// within the span.
type placed struct {
	span
	token int64
}

// contender is a granted lock with all Locks that re-entered it.
type contender struct {
	id      int
	client  *client
	queue   string
	mode    dlock.Mode // as granted; a downgrade does not change it
	token   int64
	node    string
	granted span
	handles []*handle
	refused []span // re-entries that were refused as upgrades
	learned int64  // when the contender first saw the loss, or 0
}

// handle is a Lock.
type handle struct {
	*contender
	number  int // 0 for the first Lock, 1 and more for re-entries
	actor   int
	mode    dlock.Mode
	lock    *dlock.Lock
	entered span
	answers []seen
	lowered []*ending // calls of Downgrade
	given   *ending   // the call of Unlock, or nil
}

// seen records that a Lock was found held, and in which mode.
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

// cause is an event that can take locks away from one client, one queue or one
// node.
type cause struct {
	span
	what  string
	slot  int    // slot of the affected client, or -1 for any
	queue string // affected queue; "": all
	node  string // affected node, see nodeOf; "": all
	told  bool   // the store waits with the next grant until the holder must know of the loss
	upTo  int64  // highest token affected by the removal of a whole queue, else 0
}

// sudden reports whether the cause removed a whole queue at one instant. All
// losses that it explains happened then.
func (c cause) sudden() bool { return c.upTo > 0 && c.ret == c.call+1 }

// may reports whether c can explain that h had lost the lock by tick end. A
// cut-off session may end long after the cut is healed, so causes with told set
// explain later losses, too.
func (c cause) may(h *contender, end int64) bool {
	switch {
	case c.slot >= 0 && c.slot != h.client.slot, c.queue != "" && c.queue != h.queue, c.node != "" && c.node != h.node:
		return false
	case c.told:
		return c.call <= end
	}
	return c.overlaps(span{h.granted.call, end})
}

// leftAt returns when the contender's last Lock was unlocked. clean says that
// by then the node was certainly gone from the store.
func (c *contender) leftAt() (at int64, clean bool) {
	clean = !slices.ContainsFunc(c.handles, func(h *handle) bool { return h.given == nil || h.given.err != nil })
	return c.givenBack(), clean
}

// ended returns the wall-clock time of the contender's last Unlock, or zero.
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

// nodeOf strips the mode from a node name, because a downgrade changes it.
func nodeOf(name string) string { return strings.Replace(name, "-W-", "-R-", 1) }

// recorder records the operations on one store.
type recorder struct {
	mu         sync.Mutex
	clock      int64
	attempts   []*attempt
	contenders []*contender
	live       []*handle // Locks that may still be held
	causes     []cause
	empty      map[string][]int64 // by queue: when it was seen empty while no call was in flight
	// lagging is set on an ensemble, where a server may lag behind the
	// others, so that a try may fail although the lock is free.
	lagging bool
	// shared is set if actors share nodes. The rules about the order of
	// nodes and about refused tries then do not apply.
	shared bool
	// grace is how long a node may outlive its call; 0 if unknown.
	grace time.Duration
}

func (r *recorder) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next()
}

// next advances the logical clock. mu must be held.
func (r *recorder) next() int64 {
	r.clock++
	return r.clock
}

// cause injects a fault by calling play, and records it as a possible cause of
// losses. If play returns false, the fault may still take effect until the end
// of the history.
func (r *recorder) cause(c cause, play func() (over bool)) {
	end := r.begin(c)
	if play() {
		end()
	}
}

// done adapts a fault that is over when f returns.
func done(f func()) func() bool {
	return func() bool {
		f()
		return true
	}
}

// begin records the start of a fault, which may cause losses until the caller
// calls end.
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

// take makes an attempt. After a grant it also asks all other holders for their
// state, because they must know of a loss by then.
func (r *recorder) take(a *attempt, call func() (*dlock.Lock, error)) *handle {
	r.mu.Lock()
	a.call, a.ret = r.next(), forever
	r.attempts = append(r.attempts, a)
	r.mu.Unlock()
	l, err := call()
	now := time.Now()
	r.mu.Lock()
	a.ret, a.ended, a.err = r.next(), now, err
	var others []*handle
	if err == nil {
		others = slices.Clone(r.live)
		r.won(a, l)
	} else if a.within != nil {
		r.refused(a)
	}
	r.mu.Unlock()
	for _, other := range others {
		if other.queue == a.queue {
			r.ask(a.actor, other)
		}
	}
	return a.got
}

// won records an acquired Lock, either as a re-entry or as the grant of a new
// contender. mu must be held.
func (r *recorder) won(a *attempt, l *dlock.Lock) {
	var c *contender
	if a.within != nil && l.Token() == a.within.token {
		c = a.within.contender
	} else {
		c = &contender{
			id: len(r.contenders) + 1, client: a.client, queue: a.queue, mode: a.mode,
			token: l.Token(), node: nodeOf(l.Node()), granted: a.span,
		}
		r.contenders = append(r.contenders, c)
	}
	a.got = &handle{contender: c, number: len(c.handles), actor: a.actor, mode: a.mode, lock: l, entered: a.span}
	c.handles = append(c.handles, a.got)
	r.live = append(r.live, a.got)
}

// refused records what a failed re-entry reveals about the lock. mu must be
// held.
func (r *recorder) refused(a *attempt) {
	switch c := a.within.contender; {
	case errors.Is(a.err, dlock.ErrUpgrade):
		c.refused = append(c.refused, a.span)
	case errors.Is(a.err, dlock.ErrLost):
		r.lost(c)
	}
}

// lost records that a contender has noticed its loss. mu must be held.
func (r *recorder) lost(c *contender) {
	if c.learned == 0 {
		c.learned = r.clock
	}
	r.live = slices.DeleteFunc(r.live, func(h *handle) bool { return h.contender == c })
}

// queuedAs records the token of the node that an attempt has created.
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

// ask checks whether a lock is still held and records the answer.
func (r *recorder) ask(actor int, h *handle) bool {
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

func (r *recorder) downgrade(h *handle, call func() error) error {
	e := new(ending)
	r.note(func() { h.lowered = append(h.lowered, e) })
	return r.end(h, e, call)
}

func (r *recorder) unlock(h *handle) error {
	e := new(ending)
	r.note(func() { h.given = e })
	err := r.end(h, e, h.lock.Unlock)
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

// close closes a client and then asks each of its Locks for its state.
func (r *recorder) close(c *client) error {
	e := &ending{span: span{ret: forever}}
	r.note(func() { e.call, c.closed = r.next(), e })
	err := c.locks.Close()
	r.note(func() { e.ret, e.err = r.next(), err })
	for _, h := range r.held(c) {
		r.ask(closer, h) // the model refuses an answer "still held" after the close
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

// target draws the slot of a client for a fault to hit. It prefers clients that
// hold a lock.
func (r *recorder) target(draw *rand.Rand, slots int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) > 0 && draw.IntN(3) > 0 {
		return r.live[draw.IntN(len(r.live))].client.slot
	}
	return draw.IntN(slots)
}

// Rows of the picture for events that do not belong to an actor.
const (
	closer = 0
	losses = 1000 // first row for losses, one for each slot
)
