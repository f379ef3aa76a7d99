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

// span is an interval in ticks of the recorder's clock.
type span struct{ call, ret int64 }

func (s span) overlaps(o span) bool { return s.call <= o.ret && o.call <= s.ret }

const forever = math.MaxInt64

// client is a client of the lock. A history has a fixed number of slots with
// one client each. A new client takes the slot of one that is closed.
type client struct {
	slot   int
	locks  *dlock.Client
	shared bool // its actors share their nodes
	closed *ending
}

// shares returns a non-zero number for the client if its actors share their
// nodes, and 0 otherwise.
func (c *client) shares() int {
	if !c.shared {
		return 0
	}
	return c.slot + 1
}

// attempt is a call that acquires a lock: Lock, RLock, TryLock or TryRLock.
type attempt struct {
	span
	actor   int
	client  *client
	queue   string
	mode    dlock.Mode
	try     bool
	limited bool    // the call has a deadline
	within  *handle // the Lock whose context was used, or nil
	synced  int64   // tick up to which the client has seen everything; 0 if unknown

	began   time.Time
	ended   time.Time
	queued  []placed
	retried bool  // a failed request may have left a node that blocks the call itself
	gaveUp  int64 // tick at which its context was cancelled, or 0
	got     *handle
	err     error
}

// placed says when an attempt got a node. The span begins with the call, or
// when the attempt was last seen with another node, and ends when it was seen
// with this one.
type placed struct {
	span
	token int64
}

// contender is a call that was granted the lock, with all its Locks.
type contender struct {
	id      int
	client  *client
	queue   string
	mode    dlock.Mode // of the grant, regardless of a downgrade
	token   int64
	node    string // see nodeOf
	granted span
	handles []*handle
	refused []span // re-entries refused because they would have been upgrades
	learned int64  // tick at which the loss was first seen, or 0
}

// handle is a Lock.
type handle struct {
	*contender
	number  int // 0 for the Lock that was granted, 1 and more for re-entries
	actor   int
	mode    dlock.Mode // as requested, regardless of a downgrade
	lock    *dlock.Lock
	entered span
	answers []seen
	lowered []*ending // calls of Downgrade
	given   *ending   // call of Unlock, or nil
}

// seen records that an actor found a Lock held, in that mode.
type seen struct {
	span
	actor int
	mode  dlock.Mode
}

// ending is a call of Unlock, Downgrade or [dlock.Client.Close].
type ending struct {
	span
	at  time.Time // wall clock at the return of the call
	err error
}

// over returns the tick at which the call returned, or forever if it was not
// made.
func (e *ending) over() int64 {
	if e == nil {
		return forever
	}
	return e.ret
}

// cause is an event that can take locks away: those of one client, of one
// queue, or of one node.
type cause struct {
	span
	what  string
	slot  int    // slot of the affected client; -1: any
	queue string // affected queue; "": all
	node  string // affected node, see nodeOf; "": all
	told  bool   // the holder must know of the loss before the store grants the lock to another contender
	upTo  int64  // of the removal of a whole queue: token of the last node seen in it; otherwise 0
}

// sudden reports whether a cause removed all nodes up to some token while no
// call began or ended. The losses then count from the end of the span.
func (c cause) sudden() bool { return c.upTo > 0 && c.ret == c.call+1 }

// may reports whether c may explain that h lost the lock by tick end. With
// c.told it counts even long after it was over, because a session that was cut
// off for a while may end late.
func (c cause) may(h *contender, end int64) bool {
	switch {
	case c.slot >= 0 && c.slot != h.client.slot, c.queue != "" && c.queue != h.queue, c.node != "" && c.node != h.node:
		return false
	case c.told:
		return c.call <= end
	}
	return c.overlaps(span{h.granted.call, end})
}

// leftAt returns the tick at which the contender's last Lock was unlocked, and
// whether the store had certainly removed its node by then.
func (c *contender) leftAt() (at int64, clean bool) {
	clean = !slices.ContainsFunc(c.handles, func(h *handle) bool { return h.given == nil || h.given.err != nil })
	return c.givenBack(), clean
}

// ended returns the wall-clock time at which the contender's last Lock was
// unlocked, or zero.
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

// nodeOf returns the name of a node without its mode, which a downgrade
// changes.
func nodeOf(name string) string { return strings.Replace(name, "-W-", "-R-", 1) }

// recorder records what happens to the locks of one store.
type recorder struct {
	mu         sync.Mutex
	clock      int64
	attempts   []*attempt
	contenders []*contender
	live       []*handle // Locks that may still be held
	causes     []cause
	empty      map[string][]int64 // by queue: ticks at which it was seen empty with no call in flight
	// lagging is set if the server that a client asks may not yet know what
	// the store has done, as on an ensemble. See sees.
	lagging bool
	// shared is set if actors share nodes. A call then need not have a node
	// of its own, so breaches checks neither the order of the nodes nor
	// refused tries.
	shared bool
	// grace is how long a node may outlive a failed attempt or an Unlock; 0
	// if unknown.
	grace time.Duration
}

func (r *recorder) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next()
}

// next advances the clock by one and returns the tick. The caller holds mu.
func (r *recorder) next() int64 {
	r.clock++
	return r.clock
}

// cause injects a fault by calling play, and records it as a cause of losses:
// until play returns if it returns true, and otherwise until the end of the
// history.
func (r *recorder) cause(c cause, play func() (over bool)) {
	end := r.begin(c)
	if play() {
		end()
	}
}

// done adapts f, which has no effect after it has returned, to
// [recorder.cause].
func done(f func()) func() bool {
	return func() bool {
		f()
		return true
	}
}

// begin records that a fault is about to be injected. The fault is a cause of
// losses until end is called.
func (r *recorder) begin(c cause) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.call, c.ret = r.next(), forever
	i := len(r.causes)
	r.causes = append(r.causes, c)
	return func() { r.note(func() { r.causes[i].ret = r.next() }) }
}

// settled records that a queue was seen empty with no call in flight.
func (r *recorder) settled(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.empty == nil {
		r.empty = make(map[string][]int64)
	}
	r.empty[queue] = append(r.empty[queue], r.next())
}

// take makes an attempt. After a success it asks all other holders whether they
// still hold the lock.
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

// won records an acquired Lock: a re-entry of the contender whose context was
// used, or the grant of a new contender. The caller holds mu.
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

// refused records what a failed re-entry shows about the lock. The caller holds
// mu.
func (r *recorder) refused(a *attempt) {
	switch c := a.within.contender; {
	case errors.Is(a.err, dlock.ErrUpgrade):
		c.refused = append(c.refused, a.span)
	case errors.Is(a.err, dlock.ErrLost):
		r.lost(c)
	}
}

// lost records that a contender knows of its loss. The caller holds mu.
func (r *recorder) lost(c *contender) {
	if c.learned == 0 {
		c.learned = r.clock
	}
	r.live = slices.DeleteFunc(r.live, func(h *handle) bool { return h.contender == c })
}

// queuedAs records that an attempt has a node with that token.
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

// cancel cancels the context of an attempt in flight.
func (r *recorder) cancel(a *attempt, cancel func()) {
	r.note(func() { a.gaveUp = r.next() })
	cancel()
}

// ask records whether a lock is still held, and reports it.
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

// close closes a client, records that, and asks each of its Locks whether it is
// still held.
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

// held returns the Locks that a client may still hold.
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

// target draws the slot of a client to be hit by a fault, most often one that
// holds a lock.
func (r *recorder) target(draw *rand.Rand, slots int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) > 0 && draw.IntN(3) > 0 {
		return r.live[draw.IntN(len(r.live))].client.slot
	}
	return draw.IntN(slots)
}

// Rows of the picture for events that belong to no actor.
const (
	closer = 0
	losses = 1000 // row for the losses of slot 0, followed by those of the other slots
)
