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

// span is the beginning and the end of something, in ticks of the recorder's
// clock, which counts by one.
type span struct{ call, ret int64 }

func (s span) overlaps(o span) bool { return s.call <= o.ret && o.call <= s.ret }

const forever = math.MaxInt64

// client is a client of the lock. A history has a fixed number of slots with
// one client each. When a client is closed, a new client takes its slot.
type client struct {
	slot   int
	locks  *dlock.Client
	shared bool // its actors share their nodes
	closed *ending
}

// shares returns a number that stands for the client if its actors share their
// nodes. That number is never 0. If the actors do not share their nodes, shares
// returns 0.
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
	within  *handle // the Lock with whose context the call was made, or nil
	synced  int64   // a tick: the client has seen all that the store had done before that tick; 0: no such tick is known

	began   time.Time
	ended   time.Time
	queued  []placed
	retried bool  // a request of the call has failed and may have left a node that blocks the call itself
	gaveUp  int64 // the tick at which its context was cancelled; 0: never
	got     *handle
	err     error
}

// placed says when an attempt got a node, and the token of that node. The span
// begins when the attempt was called or, if it had another node before, when it
// was last seen to have that other node. The span ends when the attempt was
// seen to have this node.
type placed struct {
	span
	token int64
}

// contender is a call that was granted the lock, with all its Locks.
type contender struct {
	id      int
	client  *client
	queue   string
	mode    dlock.Mode // the mode of the grant; a downgrade does not change it
	token   int64
	node    string // the name of its node without the mode, see nodeOf
	granted span
	handles []*handle
	refused []span // re-entries that were refused because they would have been upgrades
	learned int64  // the tick at which the loss was first seen; 0: never
}

// handle is a Lock.
type handle struct {
	*contender
	number  int // 0 for the Lock that was granted; 1 and more for its re-entries
	actor   int
	mode    dlock.Mode // the mode that was asked for; a downgrade does not change it
	lock    *dlock.Lock
	entered span
	answers []seen
	lowered []*ending // the calls of Downgrade of this Lock
	given   *ending   // the call of Unlock; nil: Unlock was not called
}

// seen records that an actor has asked for Err and Mode of a Lock, and that the
// Lock was still held, in that mode.
type seen struct {
	span
	actor int
	mode  dlock.Mode
}

// ending is a call of Unlock or Downgrade, or of Close of a client.
type ending struct {
	span
	at  time.Time // the time of day at which the call returned
	err error
}

// over returns the tick at which a call has returned, or forever if it was not
// made.
func (e *ending) over() int64 {
	if e == nil {
		return forever
	}
	return e.ret
}

// cause is something that can take locks away: those of one client, of one
// queue, or of one node.
type cause struct {
	span
	what  string
	slot  int    // the slot of the client whose locks it can take away; -1: of any client
	queue string // the queue that it hits; "": all queues
	node  string // the node that it hits, as nodeOf returns it; "": all nodes
	told  bool   // true: the holder must know of the loss before the store grants the lock to another contender
	upTo  int64  // if it removes a whole queue: the token of the last node seen in it, or 0 if none was seen; in other causes 0
}

// sudden reports whether a cause removed all nodes up to some token, and no
// call was seen to begin or to end meanwhile. The losses then count from the
// end of the span on, and not from its beginning, because nothing happened in
// between.
func (c cause) sudden() bool { return c.upTo > 0 && c.ret == c.call+1 }

// may reports whether c may be the cause of a loss of the contender h, which
// lost the lock at the given tick or earlier. If c.told is true, the cause
// counts even if it was over long before: a session that was cut off for a
// while may end late.
func (c cause) may(h *contender, end int64) bool {
	switch {
	case c.slot >= 0 && c.slot != h.client.slot, c.queue != "" && c.queue != h.queue, c.node != "" && c.node != h.node:
		return false
	case c.told:
		return c.call <= end
	}
	return c.overlaps(span{h.granted.call, end})
}

// leftAt returns the tick at which the last Lock of a contender was unlocked,
// and reports whether the store had certainly removed the contender's node by
// then.
func (c *contender) leftAt() (at int64, clean bool) {
	clean = !slices.ContainsFunc(c.handles, func(h *handle) bool { return h.given == nil || h.given.err != nil })
	return c.givenBack(), clean
}

// ended returns the time of day at which the last Lock of a contender was
// unlocked. It returns zero if one of its Locks never was.
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
	live       []*handle // handles that may still be held
	causes     []cause
	empty      map[string][]int64 // by queue: the ticks at which it was seen empty while no call was under way
	// lagging reports whether the server that a client asks may not know yet what
	// the store has done. That can happen on an ensemble. See sees.
	lagging bool
	// shared reports whether the actors of some clients share their nodes. A call
	// then need not have a node of its own. So breaches checks neither the order
	// of the nodes nor whether a TryLock was refused without a reason.
	shared bool
	// grace is how long a node may stay in the queue after its attempt has failed
	// or its lock was unlocked. 0 means that this is not known.
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

// cause calls the function play, which injects a fault, and records the fault
// as a cause of losses. The fault is a cause from the call of play on. If play
// returns true, the fault has no effect any more, and is a cause only until
// play has returned. Otherwise it is a cause until the end of the history.
func (r *recorder) cause(c cause, play func() (over bool)) {
	end := r.begin(c)
	if play() {
		end()
	}
}

// done returns a function for [recorder.cause] that plays f. The function
// returns true, because f has no effect after it has returned.
func done(f func()) func() bool {
	return func() bool {
		f()
		return true
	}
}

// begin records that a fault is about to be injected. The fault is a cause of
// losses until the function end is called.
func (r *recorder) begin(c cause) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.call, c.ret = r.next(), forever
	i := len(r.causes)
	r.causes = append(r.causes, c)
	return func() { r.note(func() { r.causes[i].ret = r.next() }) }
}

// settled records that a queue was seen empty while no call was under way.
func (r *recorder) settled(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.empty == nil {
		r.empty = make(map[string][]int64)
	}
	r.empty[queue] = append(r.empty[queue], r.next())
}

// take makes an attempt. If it succeeds, take asks all other holders whether
// they still hold the lock.
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

// won records the Lock that an attempt has acquired: a re-entry of the
// contender with whose context the attempt was made, or else the grant of a new
// contender. The caller holds mu.
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

// refused records what the failure of a re-entry shows about the lock. The
// caller holds mu.
func (r *recorder) refused(a *attempt) {
	switch c := a.within.contender; {
	case errors.Is(a.err, dlock.ErrUpgrade):
		c.refused = append(c.refused, a.span)
	case errors.Is(a.err, dlock.ErrLost):
		r.lost(c)
	}
}

// lost records that a contender knows of its loss by now. The caller holds mu.
func (r *recorder) lost(c *contender) {
	if c.learned == 0 {
		c.learned = r.clock
	}
	r.live = slices.DeleteFunc(r.live, func(h *handle) bool { return h.contender == c })
}

// queuedAs records that an attempt has a node with that token in the queue.
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

// cancel cancels the context of an attempt that is still under way.
func (r *recorder) cancel(a *attempt, cancel func()) {
	r.note(func() { a.gaveUp = r.next() })
	cancel()
}

// ask checks whether a lock is still held and records the answer. It returns
// false if the lock is not held.
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

// close closes a client and records that. Then it asks each Lock of the client
// whether it is still held.
func (r *recorder) close(c *client) error {
	e := &ending{span: span{ret: forever}}
	r.note(func() { e.call, c.closed = r.next(), e })
	err := c.locks.Close()
	r.note(func() { e.ret, e.err = r.next(), err })
	for _, h := range r.held(c) {
		r.ask(closer, h) // after the close, the model refuses an answer "still held"
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

// target draws the slot of a client for a fault to hit. In most cases that
// client holds a lock.
func (r *recorder) target(draw *rand.Rand, slots int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) > 0 && draw.IntN(3) > 0 {
		return r.live[draw.IntN(len(r.live))].client.slot
	}
	return draw.IntN(slots)
}

// The picture of a history has one row for each actor, and these rows for
// events that belong to no actor.
const (
	closer = 0
	losses = 1000 // the row for the losses of slot 0; each further slot has the next row
)
