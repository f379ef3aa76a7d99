package memdriver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// Store is a store in memory. It implements driver.Connector. [Store.Stats]
// counts its contents, and [Store.Faults] injects faults into it and its
// sessions. All methods are safe for concurrent use.
type Store struct {
	timeout       time.Duration
	sequenceStart int64
	sequenceLimit int64

	// mu guards the fields below, the store's records, queues and nodes, and
	// some fields of its sessions.
	mu       sync.Mutex
	queues   map[string]*queue
	idle     []*queue   // queues without nodes, idle for longest first
	tokens   int64      // the last token given to a node
	epochs   int64      // the last epoch given to a queue
	opened   int64      // number of sessions ever begun
	sessions []*session // sessions that the store has not dropped
	requests map[faults.Op]int64

	cuts   int           // cuts by Faults.Down that have not healed yet
	healed chan struct{} // closed and replaced when a cut of any kind heals
}

func New(opts ...Option) *Store {
	st := &Store{
		timeout:       defaultSessionTimeout,
		sequenceLimit: defaultSequenceLimit,
		queues:        make(map[string]*queue),
		requests:      make(map[faults.Op]int64),
		healed:        make(chan struct{}),
	}
	for _, opt := range opts {
		opt(st)
	}
	return st
}

// Connect begins a new session, with the session timeout of the store. While
// the store is down ([Faults.Down]), it fails at once, as if the connection was
// refused, with an error that matches driver.ErrUnavailable.
func (st *Store) Connect(ctx context.Context) (driver.Session, error) {
	return st.connect(ctx, st.timeout)
}

func (st *Store) connect(ctx context.Context, timeout time.Duration) (driver.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("mem: connect: %w", err)
	}
	sent := driver.Now()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cuts > 0 {
		return nil, fmt.Errorf("mem: connect: %w: the store is down", driver.ErrUnavailable)
	}
	st.opened++
	r := &record{id: fmt.Sprintf("session-%d", st.opened), timeout: timeout, heard: time.Now()}
	r.expiry = time.AfterFunc(timeout, func() { st.expire(r) })
	s := newSession(st, r, sent)
	st.sessions = append(st.sessions, s)
	return s, nil
}

// record is a session as the store sees it.
type record struct {
	id        string
	timeout   time.Duration
	heard     time.Time // arrival of the session's last request
	expiry    *time.Timer
	gone      bool
	cleanedUp map[int64]bool // Creates to refuse, by number, because their clean-up has arrived first
}

// expire drops a session that the store has not heard from for its timeout. It
// runs when the record's timer fires. Requests do not reset that timer, so
// expire sets it again if one has arrived meanwhile.
func (st *Store) expire(r *record) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if left := r.timeout - time.Since(r.heard); left <= 0 {
		st.drop(r)
	} else if !r.gone {
		r.expiry.Reset(left)
	}
}

// The methods below are called with mu held.

// accept counts a request that has reached the store, and renews its session
// for another session timeout. If the store has dropped the session, it returns
// an error, and the request must not be served.
func (st *Store) accept(r *record, op faults.Op) error {
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
	st.sessions = slices.DeleteFunc(st.sessions, func(s *session) bool { return s.record == r })
	for _, q := range st.sorted() {
		for _, n := range slices.Clone(q.nodes) {
			if n.owner == r {
				st.remove(q, n, driver.Changed)
			}
		}
	}
}

// create appends a node to a queue: rules 1, 2, 3 and 5. The node records the
// number of the call, for cleanUp.
func (st *Store) create(r *record, call int64, queue string, made driver.NodeSpec) (driver.Joined, error) {
	if r.cleanedUp[call] {
		delete(r.cleanedUp, call)
		return driver.Joined{}, errCleanedUp
	}
	q := st.open(queue)
	defer st.updateIdle(q)
	if q.next >= st.sequenceLimit {
		// The sequences start over when no contender is left. Before that, a
		// new node would get a lower sequence than an older one.
		if left := len(q.list()); left > 0 {
			return driver.Joined{}, fmt.Errorf("%w: the queue's sequences are used up; they start over when its %d nodes have gone",
				driver.ErrUnavailable, left)
		}
		st.epochs++
		q.epoch, q.next = st.epochs, 0
	}
	ahead := q.list()
	n := &node{
		Node:  driver.Node{Name: driver.FormatName(made.Prefix, q.next), Seq: q.next, Epoch: q.epoch},
		owner: r, call: call, contender: true, data: made.Data,
	}
	st.add(q, n)
	return driver.Joined{Place: driver.Place{Node: n.Node, Token: n.token}, Known: true, Ahead: ahead}, nil
}

// cleanUp removes the node of a Create. If the Create has not arrived yet, the
// store refuses it when it does: rule 4.
func (st *Store) cleanUp(r *record, call int64, queue string) {
	q, n := st.find(queue, func(n *node) bool { return n.owner == r && n.call == call })
	if n != nil {
		st.remove(q, n, driver.Changed)
		return
	}
	if r.cleanedUp == nil {
		r.cleanedUp = make(map[int64]bool)
	}
	r.cleanedUp[call] = true
}

// delete removes the node with the token of the place: rule 7. Tokens are
// unique, and a node keeps its token in a Replace: rule 12. Only the owner can
// release its node: rule 13.
func (st *Store) delete(r *record, queue string, p driver.Place, why driver.Cause) error {
	q, n := st.find(queue, withToken(p))
	switch {
	case n == nil:
		return driver.ErrGone
	case why == driver.Released && n.owner != r:
		return errNotOwner
	}
	st.remove(q, n, why)
	return nil
}

// replace changes the name of a node, which keeps its place in the queue: rule
// 12.
func (st *Store) replace(r *record, queue string, p driver.Place, prefix string) (driver.Place, error) {
	_, n := st.find(queue, withToken(p))
	switch {
	case n == nil:
		return driver.Place{}, driver.ErrGone
	case n.owner != r:
		return driver.Place{}, errNotOwner
	}
	if name := driver.FormatName(prefix, n.Seq); name != n.Name {
		before := n.Node
		n.Name = name
		st.notify(queue, before, driver.Changed)
	}
	return driver.Place{Node: n.Node, Token: n.token}, nil
}

// allInQueue reports whether the queue holds a node with the name in p and all
// nodes in ahead, by name. If p has a token, the node with its name must have
// it, too.
func (st *Store) allInQueue(queue string, p driver.Place, ahead []driver.Node) bool {
	_, own := st.find(queue, withName(p.Name))
	if own == nil || p.Token != 0 && p.Token != own.token {
		return false
	}
	return !slices.ContainsFunc(ahead, func(a driver.Node) bool {
		_, n := st.find(queue, withName(a.Name))
		return n == nil
	})
}

func (st *Store) read(r *record, queue, name string) (driver.NodeInfo, error) {
	_, n := st.find(queue, withName(name))
	if n == nil {
		return driver.NodeInfo{}, driver.ErrGone
	}
	return n.info(r), nil
}

// walk returns the queues with nodes at prefix or below it.
func (st *Store) walk(prefix string) (names []string) {
	for _, q := range st.sorted() {
		if len(q.nodes) > 0 && within(q.name, prefix) {
			names = append(names, q.name)
		}
	}
	return names
}

// sorted returns the queues ordered by name.
func (st *Store) sorted() (queues []*queue) {
	for _, name := range slices.Sorted(maps.Keys(st.queues)) {
		queues = append(queues, st.queues[name])
	}
	return queues
}

// Stats counts a store's contents at one instant, and its requests so far.
type Stats struct {
	Sessions int // sessions that the store has not dropped
	Queues   int // including the empty queues that the store remembers
	Nodes    int // including the foreign nodes that List leaves out
	Watches  int // open watches of these sessions

	// Requests counts the requests that have reached the store, by kind,
	// whether or not the store could carry them out, but without those of
	// sessions that the store had dropped.
	Requests map[faults.Op]int64
}

// Stats counts the contents of the store. It takes time in proportion to the
// number of queues and watches.
func (st *Store) Stats() Stats {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := Stats{Sessions: len(st.sessions), Queues: len(st.queues), Requests: maps.Clone(st.requests)}
	for _, q := range st.queues {
		s.Nodes += len(q.nodes)
	}
	for _, c := range st.sessions {
		s.Watches += c.watches.Len()
	}
	return s
}
