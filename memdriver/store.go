package memdriver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store is a store in memory. It implements driver.Connector. [Store.Stats]
// shows what it holds, and [Store.Faults] plays faults on it and its sessions.
// All methods may be called from many goroutines.
type Store struct {
	timeout       time.Duration
	sequenceStart int64
	sequenceLimit int64

	// mu guards everything below, and the records, queues, nodes and watches of
	// the store. It guards what belongs to its sessions, too.
	mu       sync.Mutex
	queues   map[string]*queue
	idle     []*queue // those without nodes and watches, idle for longest first
	tokens   int64    // the last token given out
	epochs   int64    // incarnations of queues so far
	opened   int64    // sessions so far
	sessions int      // that live
	requests [opCount]int64

	cuts   int           // between the store and all sessions
	healed chan struct{} // closes when any cut of the store or of a session heals
}

// New returns a new, empty store.
func New(opts ...Option) *Store {
	st := &Store{
		timeout:       defaultSessionTimeout,
		sequenceLimit: defaultSequenceLimit,
		queues:        make(map[string]*queue),
		healed:        make(chan struct{}),
	}
	for _, opt := range opts {
		opt(st)
	}
	return st
}

// Connect begins a new session, with the session timeout of the store. While
// the store is down ([Faults.Down]), Connect returns at once an error that
// matches driver.ErrUnavailable, as where a connection is refused.
func (st *Store) Connect(ctx context.Context) (driver.Session, error) {
	return st.connect(ctx, st.timeout)
}

func (st *Store) connect(ctx context.Context, timeout time.Duration) (driver.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("mem: connect: %w", err)
	}
	sent := driver.Now()
	r, err := st.admit(timeout)
	if err != nil {
		return nil, fmt.Errorf("mem: connect: %w", err)
	}
	return newSession(st, r, sent), nil
}

// record is what the store keeps of a session.
type record struct {
	id      string
	timeout time.Duration
	heard   time.Time // when a request of the session arrived last
	expiry  *time.Timer
	gone    bool
	void    map[int64]bool // Creates that were cleaned up before they arrived
}

// admit makes the record of a new session.
func (st *Store) admit(timeout time.Duration) (*record, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cuts > 0 {
		return nil, fmt.Errorf("%w: the store is down", driver.ErrUnavailable)
	}
	st.opened++
	st.sessions++
	r := &record{id: fmt.Sprintf("session-%d", st.opened), timeout: timeout, heard: time.Now()}
	r.expiry = time.AfterFunc(timeout, func() { st.expire(r) })
	return r, nil
}

// expire drops a session that the store has not heard of for its timeout. It
// runs on a timer, which arrive does not touch: expire sets the timer again if
// the session was heard of meanwhile.
func (st *Store) expire(r *record) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if left := r.timeout - time.Since(r.heard); left <= 0 {
		st.drop(r)
	} else if !r.gone {
		r.expiry.Reset(left)
	}
}

// All methods below are called with mu held.

// arrive counts a request that has reached the store: the session lives for
// another timeout from here. The store does not serve a session that it has
// dropped.
func (st *Store) arrive(r *record, op Op) error {
	if r.gone {
		return errUnknown
	}
	r.heard = time.Now()
	st.requests[op]++
	return nil
}

// drop ends a session in the store and removes its nodes.
func (st *Store) drop(r *record) {
	if r.gone {
		return
	}
	r.gone = true
	r.expiry.Stop()
	st.sessions--
	for _, q := range st.sorted() {
		for _, n := range slices.Clone(q.nodes) {
			if n.owner == r {
				st.remove(q, n, driver.Changed)
			}
		}
	}
}

// create appends a node to a queue: rules 1, 2, 3 and 5. The number of the call
// within its session stands for the node in cleanUp.
func (st *Store) create(r *record, call int64, queue, prefix string, data []byte) (driver.Place, error) {
	if r.void[call] {
		delete(r.void, call)
		return driver.Place{}, errVoid
	}
	q := st.open(queue)
	defer st.settle(q)
	if q.next >= st.sequenceLimit {
		// Start over as a new incarnation, once the queue is empty: otherwise
		// names could not tell the contenders of before and after apart.
		if left := len(q.list()); left > 0 {
			return driver.Place{}, fmt.Errorf("%w: its sequences are used up, and start over when its %d older nodes have gone",
				driver.ErrUnavailable, left)
		}
		st.epochs++
		q.epoch, q.next = st.epochs, 0
	}
	alone := q.alone()
	n := &node{
		Node:  driver.Node{Name: driver.FormatName(prefix, q.next), Seq: q.next, Epoch: q.epoch},
		owner: r, call: call, contender: true, data: data,
	}
	st.add(q, n)
	return driver.Place{Node: n.Node, Token: n.token, Alone: alone}, nil
}

// cleanUp removes the node of a Create, or has the store refuse the Create if
// that arrives later: rule 4.
func (st *Store) cleanUp(r *record, call int64, queue string) {
	q, n := st.find(queue, func(n *node) bool { return n.owner == r && n.call == call })
	if n != nil {
		st.remove(q, n, driver.Changed)
		return
	}
	if r.void == nil {
		r.void = make(map[int64]bool)
	}
	r.void[call] = true
}

// delete removes the node with the token of the place: rule 7. No other node
// ever gets that token, and the node keeps it under its new name after a
// Replace: rule 12.
func (st *Store) delete(queue string, p driver.Place) error {
	q, n := st.find(queue, at(p))
	if n == nil {
		return driver.ErrGone
	}
	st.remove(q, n, driver.Changed)
	return nil
}

// release is delete by the node's owner, of which watches of the node are told:
// rule 13.
func (st *Store) release(r *record, queue string, p driver.Place) error {
	q, n, err := st.owned(r, queue, p)
	if err == nil {
		st.remove(q, n, driver.Released)
	}
	return err
}

// replace renames a node where it stands: rule 12.
func (st *Store) replace(r *record, queue string, p driver.Place, prefix string) (driver.Place, error) {
	q, n, err := st.owned(r, queue, p)
	if err != nil {
		return driver.Place{}, err
	}
	if name := driver.FormatName(prefix, n.Seq); name != n.Name {
		n.Name = name
		st.fire(&n.watches, driver.Changed)
		st.fire(&q.watches, driver.Changed)
	}
	return driver.Place{Node: n.Node, Token: n.token}, nil
}

// owned returns the node at a place, if it belongs to the session.
func (st *Store) owned(r *record, queue string, p driver.Place) (*queue, *node, error) {
	q, n := st.find(queue, at(p))
	switch {
	case n == nil:
		return nil, nil, driver.ErrGone
	case n.owner != r:
		return nil, nil, errNotOwner
	}
	return q, n, nil
}

// arm arms a watch: rule 6. A watch of a node that is not there ends at once. A
// watch of a place ends at once, too, if another node has its name: rule 13.
func (st *Store) arm(w *watch, queue string, p driver.Place) {
	if w.closed {
		return // its caller has given up
	}
	if p.Name == "" {
		w.queue = st.open(queue)
		w.list = &w.queue.watches
	} else {
		q, n := st.find(queue, named(p.Name))
		if n == nil || p.Token != 0 && p.Token != n.token {
			w.close(driver.Changed)
			return
		}
		w.queue, w.list = q, &n.watches
	}
	*w.list = append(*w.list, w)
	st.settle(w.queue)
}

// disarm takes a watch away, if it is still armed.
func (st *Store) disarm(w *watch) {
	if w.list != nil {
		*w.list = slices.DeleteFunc(*w.list, func(other *watch) bool { return other == w })
		w.list = nil
		st.settle(w.queue)
	}
}

// fire ends the watches of a list, in the order in which they were armed.
func (st *Store) fire(list *[]*watch, why driver.Cause) {
	watches := *list
	*list = nil
	for _, w := range watches {
		w.list = nil
		w.session.deliver(w, why)
	}
}

// watchesOf returns the watches of a session that are armed.
func (st *Store) watchesOf(s *session) (watches []*watch) {
	for _, q := range st.sorted() {
		watches = append(watches, q.watches...)
		for _, n := range q.nodes {
			watches = append(watches, n.watches...)
		}
	}
	return slices.DeleteFunc(watches, func(w *watch) bool { return w.session != s })
}

func (st *Store) read(r *record, queue, name string) (driver.Info, error) {
	_, n := st.find(queue, named(name))
	if n == nil {
		return driver.Info{}, driver.ErrGone
	}
	return n.info(r), nil
}

// walk returns the names of the queues with nodes at prefix or below it.
func (st *Store) walk(prefix string) (names []string) {
	for _, q := range st.sorted() {
		if len(q.nodes) > 0 && within(q.name, prefix) {
			names = append(names, q.name)
		}
	}
	return names
}

// sorted returns the queues in the order of their names.
func (st *Store) sorted() (queues []*queue) {
	for _, name := range slices.Sorted(maps.Keys(st.queues)) {
		queues = append(queues, st.queues[name])
	}
	return queues
}

// Stats is what a store holds at one instant, and what it was asked so far.
type Stats struct {
	Sessions int
	Queues   int // also those that are empty and not yet forgotten
	Nodes    int // also those that are no contenders
	Watches  int // armed in the store

	// Requests counts the requests of living sessions that reached the store,
	// whether or not the store could do what they asked for. Index it with an
	// [Op].
	Requests [opCount]int64
}

// Stats returns the state of the store. It takes time in proportion to the
// number of nodes.
func (st *Store) Stats() Stats {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := Stats{Sessions: st.sessions, Queues: len(st.queues), Requests: st.requests}
	for _, q := range st.queues {
		s.Nodes += len(q.nodes)
		s.Watches += len(q.watches)
		for _, n := range q.nodes {
			s.Watches += len(n.watches)
		}
	}
	return s
}
