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

// Store is a driver.Connector in memory. It is safe for concurrent use.
type Store struct {
	timeout       time.Duration
	sequenceStart int64
	sequenceLimit int64

	// mu guards the fields below, all records, queues and nodes, and some
	// fields of the sessions.
	mu       sync.Mutex
	queues   map[string]*queue
	values   map[string]storedValue
	idle     []*queue // empty queues, the one empty for longest first
	tokens   int64
	epochs   int64
	opened   int64
	sessions []*session // sessions not yet dropped
	requests map[faults.Op]int64

	cuts   int           // calls of Faults.Down not yet healed
	healed chan struct{} // closed and replaced whenever a cut heals
}

func New(opts ...Option) *Store {
	st := &Store{
		timeout:       defaultSessionTimeout,
		sequenceLimit: defaultSequenceLimit,
		queues:        make(map[string]*queue),
		values:        make(map[string]storedValue),
		requests:      make(map[faults.Op]int64),
		healed:        make(chan struct{}),
	}
	for _, opt := range opts {
		opt(st)
	}
	return st
}

// Connect begins a session with the store's session timeout. While the store is
// down (see [Faults.Down]), Connect fails at once with an error that matches
// driver.ErrUnavailable, as if the connection were refused.
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

type record struct {
	id        string
	timeout   time.Duration
	heard     time.Time // when the latest request arrived
	expiry    *time.Timer
	gone      bool
	cleanedUp map[int64]bool // Creates whose clean-up came first, by number
}

func (st *Store) expire(r *record) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.dropIfSilent(r)
}

// The methods below require mu.

// dropIfSilent drops the session if it has been silent for its timeout.
// Otherwise it rearms the record's timer, which requests do not reset.
func (st *Store) dropIfSilent(r *record) {
	if left := r.timeout - time.Since(r.heard); left <= 0 {
		st.drop(r)
	} else if !r.gone {
		r.expiry.Reset(left)
	}
}

// accept renews the session and counts the request. If it returns an error,
// because the session was dropped, the request must not be served.
func (st *Store) accept(r *record, op faults.Op) error {
	if r.gone {
		return errUnknown
	}
	r.heard = time.Now()
	st.requests[op]++
	return nil
}

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

// create stores the number of the call in the node, so that cleanUp can find
// the node.
func (st *Store) create(r *record, call int64, queue string, made driver.NodeSpec) (driver.Joined, error) {
	if r.cleanedUp[call] {
		delete(r.cleanedUp, call)
		return driver.Joined{}, errCleanedUp
	}
	q := st.open(queue)
	defer st.updateIdle(q)
	if q.next >= st.sequenceLimit {
		// As long as there are nodes, starting over would give a new node a
		// lower sequence than an older one.
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
	return driver.Joined{Place: driver.Place{Node: n.Node, Token: n.token}, Created: n.created, Known: true, Ahead: ahead}, nil
}

// cleanUp removes the node of the given call of Create. If that Create arrives
// later, it is refused (rule 4 of package driver).
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

// delete finds the node by its token, because a Replace changes the name. Only
// a node's owner may release it.
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

// Any session may call removePlace, not only the node's owner.
func (st *Store) removePlace(queue string, p driver.Place) error {
	q, n := st.find(queue, func(n *node) bool { return n.Name == p.Name && n.token == p.Token })
	if n == nil {
		return driver.ErrGone
	}
	st.remove(q, n, driver.Changed)
	return nil
}

// replace renames a node, which keeps its place in the queue (rule 12).
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

// storedValue is the value set by SetValue for a queue. It outlives the queue.
type storedValue struct {
	value []byte
	token int64 // of the node that set the value
}

func (st *Store) setValue(r *record, queue string, p driver.Place, value []byte) error {
	_, n := st.find(queue, withToken(p))
	switch {
	case n == nil:
		return driver.ErrGone
	case n.owner != r:
		return errNotOwner
	case st.values[queue].token > n.token:
		return driver.ErrStale
	}
	st.values[queue] = storedValue{value, n.token}
	return nil
}

// allInQueue reports whether the node of p and all nodes in ahead still exist.
// If p has a token, that must match, too.
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

func (st *Store) walk(prefix string) (names []string) {
	for _, q := range st.sorted() {
		if len(q.nodes) > 0 && within(q.name, prefix) {
			names = append(names, q.name)
		}
	}
	return names
}

func (st *Store) sorted() (queues []*queue) {
	for _, name := range slices.Sorted(maps.Keys(st.queues)) {
		queues = append(queues, st.queues[name])
	}
	return queues
}

// Stats is a snapshot of a store's contents, with a count of its requests.
type Stats struct {
	Sessions int // sessions not yet dropped
	Queues   int // including empty queues that the store still remembers
	Nodes    int // including nodes of other programs that List omits
	Watches  int // open watches of all sessions

	// Requests counts the requests that reached the store, by kind, even if
	// they failed. After a session is dropped, its requests are not counted.
	Requests map[faults.Op]int64
}

// Stats returns a snapshot of the store. It takes time in proportion to the
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
