package memdriver

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// errUnknown is what the store says to a session that it keeps no record of any
// more.
var errUnknown = fmt.Errorf("%w: the store does not know the session any more", driver.ErrSessionEnded)

// errNotOwner is the answer to a session that wants to replace the node of
// another one.
var errNotOwner = errors.New("the node belongs to another session")

// errVoid is the answer to a Create that was overtaken by its own clean-up.
// Nobody waits for it.
var errVoid = errors.New("create was cleaned up before it arrived")

// record is what the store keeps of a session: when it last heard of it, and
// which nodes go when it ends.
type record struct {
	store   *Store
	id      string
	timeout time.Duration
	drop    sync.Once

	mu     sync.Mutex
	over   bool
	heard  time.Time
	expiry *time.Timer
	nodes  list[*node]
	void   map[int64]struct{} // Creates that were cleaned up before they arrived
	served requests
}

// admit makes the record of a new session.
func (st *Store) admit(timeout time.Duration) *record {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.opened++
	r := &record{store: st, id: fmt.Sprintf("session-%d", st.opened), timeout: timeout, heard: time.Now()}
	st.records[r] = struct{}{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expiry = time.AfterFunc(timeout, r.tick)
	return r
}

// arrive counts a request that has reached the store: the session lives for
// another timeout from here. A session that has ended is not served.
func (r *record) arrive(op Op) (at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return time.Time{}, errUnknown
	}
	r.heard = time.Now()
	r.served[op]++
	return r.heard, nil
}

// tick runs on the timer. It looks whether the session was heard of since the
// timer was set; so arrive need not touch the timer.
func (r *record) tick() {
	if r.expired() {
		r.end()
	}
}

func (r *record) expired() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := r.timeout - time.Since(r.heard)
	if r.over || left <= 0 {
		r.over = true
		return true
	}
	r.expiry.Reset(left)
	return false
}

// age makes the store believe that it has heard nothing of the session for d
// longer than is so.
func (r *record) age(d time.Duration) {
	r.mu.Lock()
	r.heard = r.heard.Add(-d)
	r.mu.Unlock()
	r.tick()
}

// end drops the session and removes its nodes. They are gone when end returns,
// also where it was called twice at the same time.
func (r *record) end() {
	r.drop.Do(func() {
		for _, n := range r.abandon() {
			r.store.remove(n)
		}
		r.store.retire(r)
	})
}

// abandon ends the record and returns the nodes that it leaves. None can be
// added any more.
func (r *record) abandon() []*node {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	r.expiry.Stop()
	nodes := make([]*node, 0, r.nodes.len)
	for n := range r.nodes.all() {
		nodes = append(nodes, n)
	}
	return nodes
}

// retire forgets a record that has ended, but for its requests.
func (st *Store) retire(r *record) {
	st.mu.Lock()
	defer st.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(st.records, r)
	for op, n := range r.served {
		st.served[op] += n
	}
}

// own makes a new node the session's. It refuses the node of a Create that was
// cleaned up already.
func (r *record) own(n *node) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errUnknown
	}
	if _, void := r.void[n.call]; void {
		delete(r.void, n.call)
		return errVoid
	}
	r.nodes.pushBack(&n.owned, n)
	return nil
}

func (r *record) disown(n *node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.nodes.remove(&n.owned)
}

// undo returns the node that the Create of that number made. If there is none
// the Create may still be on its way: it is declared void, and own will refuse
// it.
func (r *record) undo(call int64) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := range r.nodes.all() {
		if n.call == call {
			return n
		}
	}
	if r.void == nil {
		r.void = make(map[int64]struct{})
	}
	r.void[call] = struct{}{}
	return nil
}
