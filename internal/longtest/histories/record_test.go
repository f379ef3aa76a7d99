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

// span is when something began and when it was over, by the clock that counts.
type span struct{ call, ret int64 }

func (s span) overlaps(o span) bool { return s.call <= o.ret && o.call <= s.ret }

const forever = math.MaxInt64

// client is a client of the lock. When it is closed another one takes its seat.
type client struct {
	seat   int
	locks  *dlock.Client
	shared bool // its actors share their places
	closed *ending
}

// shares tells whose places are shared, 0 if nobody's.
func (c *client) shares() int {
	if !c.shared {
		return 0
	}
	return c.seat + 1
}

// attempt is a call that takes a lock: Lock, RLock, TryLock or TryRLock.
type attempt struct {
	span
	actor   int
	client  *client
	queue   string
	mode    dlock.Mode
	try     bool
	limited bool    // there is a deadline
	within  *handle // whose context it is called with; nil: nobody's
	synced  int64   // the client has seen all that the store did before; 0: nothing is known of that

	began   time.Time
	ended   time.Time
	queued  []placed
	retried bool  // a request has failed: the attempt may be in its own way
	gaveUp  int64 // when its context was cancelled; 0: never
	got     *handle
	err     error
}

// placed is when an attempt was known to stand in the queue. Before its call, and before it was
// known to stand in the queue the last time, it had not got that token.
type placed struct {
	span
	token int64
}

// contender is somebody who was granted the lock, and all of his Locks.
type contender struct {
	id      int
	client  *client
	queue   string
	mode    dlock.Mode // at first
	token   int64
	node    string // see nodeOf
	granted span
	handles []*handle
	refused []span // re-entries that would have been upgrades
	learned int64  // when a loss was first seen; 0: never
}

// handle is a Lock.
type handle struct {
	*contender
	number  int // 0: the one that was granted; the others have entered again
	actor   int
	mode    dlock.Mode // at first
	lock    *dlock.Lock
	entered span
	answers []seen
	lowered []*ending // by Downgrade
	given   *ending   // by Unlock
}

// seen is an answer "still held".
type seen struct {
	span
	actor int
	mode  dlock.Mode
}

type ending struct {
	span
	at  time.Time // of the return
	err error
}

// over is when a call has returned, forever if it has not been made.
func (e *ending) over() int64 {
	if e == nil {
		return forever
	}
	return e.ret
}

// cause is something that can take locks away: those of a client's seat, or of a queue, or of one node.
type cause struct {
	span
	what  string
	seat  int    // -1: none in particular
	queue string // "": all
	node  string // "": all
	told  bool   // the holder has to know before the store lets anybody in
	upTo  int64  // of a removal of all nodes at once: a token up to which it removed them; 0: not known
}

// sudden tells whether nothing else was seen to begin or end while all nodes up to some token
// were removed. Then no harm is done by putting that before all that came of it.
func (c cause) sudden() bool { return c.upTo > 0 && c.ret == c.call+1 }

// may tells whether a contender whose hold ends by that time can have lost it for that cause. A
// session that was cut off once may end late.
func (c cause) may(h *contender, end int64) bool {
	switch {
	case c.seat >= 0 && c.seat != h.client.seat, c.queue != "" && c.queue != h.queue, c.node != "" && c.node != h.node:
		return false
	case c.told:
		return c.call <= end
	}
	return c.overlaps(span{h.granted.call, end})
}

// leftAt returns when the last Lock of a contender was given back, and whether his node was gone for
// certain then.
func (c *contender) leftAt() (at int64, clean bool) {
	clean = !slices.ContainsFunc(c.handles, func(h *handle) bool { return h.given == nil || h.given.err != nil })
	return c.givenBack(), clean
}

// ended is the time of day of that, zero if there is none.
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

// nodeOf returns the name of a node without its mode, which a downgrade changes.
func nodeOf(name string) string { return strings.Replace(name, "-W-", "-R-", 1) }

// recorder takes down what happens to the locks of one store.
type recorder struct {
	mu         sync.Mutex
	clock      int64
	attempts   []*attempt
	contenders []*contender
	live       []*handle // those worth asking
	causes     []cause
	empty      map[string][]int64 // when a queue was seen empty and everybody at rest
	lagging    bool               // the store answers some clients with what it knew a while ago
	shared     bool               // some clients share their places, so that the order of arrival is theirs alone
	grace      time.Duration      // after this, nothing is left of an attempt or a lock; 0: nobody knows
}

func (r *recorder) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next()
}

// next is tick, with mu held.
func (r *recorder) next() int64 {
	r.clock++
	return r.clock
}

// cause plays a fault and takes it down. It counts as a cause from now on, also while it is
// being played; and for ever, if play does not know whether it will be without effect later.
func (r *recorder) cause(c cause, play func() (over bool)) {
	end := r.begin(c)
	if play() {
		end()
	}
}

// begin takes a fault down that is about to be played, until end is called.
func (r *recorder) begin(c cause) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.call, c.ret = r.next(), forever
	i := len(r.causes)
	r.causes = append(r.causes, c)
	return func() { r.note(func() { r.causes[i].ret = r.next() }) }
}

// settled notes that a queue was seen empty while nobody did anything.
func (r *recorder) settled(queue string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.empty == nil {
		r.empty = make(map[string][]int64)
	}
	r.empty[queue] = append(r.empty[queue], r.next())
}

// take makes an attempt, and has everybody else asked if it has succeeded.
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

// won takes a Lock down. It is called with mu held.
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

// refused takes down what a re-entry that has failed says of the lock it is about. It is called with mu held.
func (r *recorder) refused(a *attempt) {
	switch c := a.within.contender; {
	case errors.Is(a.err, dlock.ErrUpgrade):
		c.refused = append(c.refused, a.span)
	case errors.Is(a.err, dlock.ErrLost):
		r.lost(c)
	}
}

// lost notes that a contender knows by now. It is called with mu held.
func (r *recorder) lost(c *contender) {
	if c.learned == 0 {
		c.learned = r.clock
	}
	r.live = slices.DeleteFunc(r.live, func(h *handle) bool { return h.contender == c })
}

// queuedAs notes that an attempt stands in the queue.
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

// cancel cancels the context of an attempt, if it is still going on.
func (r *recorder) cancel(a *attempt, cancel func()) {
	r.note(func() { a.gaveUp = r.next() })
	cancel()
}

// ask looks whether a lock is still held, and takes that down. It returns false if it is not.
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

// close closes a client.
func (r *recorder) close(c *client) error {
	e := &ending{span: span{ret: forever}}
	r.note(func() { e.call, c.closed = r.next(), e })
	err := c.locks.Close()
	r.note(func() { e.ret, e.err = r.next(), err })
	for _, h := range r.held(c) {
		r.ask(closer, h) // whatever says that it is held is wrong
	}
	return err
}

// held returns what a client may still hold.
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

// target draws the seat that a fault is to hit: mostly one whose client holds a lock.
func (r *recorder) target(draw *rand.Rand, seats int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) > 0 && draw.IntN(3) > 0 {
		return r.live[draw.IntN(len(r.live))].client.seat
	}
	return draw.IntN(seats)
}

// Rows of the picture for those who are no actors.
const (
	closer = 0
	losses = 1000 // and on, one for each seat
)
