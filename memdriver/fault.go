package memdriver

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
)

// Faults plays faults on a store and its sessions, for tests: see [Store.Faults].
// It holds nothing of its own.
//
// All methods may be called at any time and from many goroutines. A method that
// takes a session panics if the session is not one of this store.
type Faults struct{ store *Store }

// Faults returns what plays faults on this store.
func (st *Store) Faults() Faults { return Faults{st} }

// Expire ends a session as a store does that has not heard of it for too long:
// first the session's lease has run out (Done closes, and so do its watches),
// then its nodes go. They are gone when Expire returns.
func (f Faults) Expire(s driver.Session) {
	ms := f.session(s)
	ms.lease.End(errExpired)
	<-ms.ended
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.store.drop(ms.record)
}

// Drop ends a session in the store alone, as an operator may: its nodes are gone
// when Drop returns, and its process learns of the end with its next request.
func (f Faults) Drop(s driver.Session) {
	ms := f.session(s)
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.store.drop(ms.record)
}

// CutOff cuts the line between a session and the store until heal is called, as
// a network does that drops packets: neither side is told. Requests wait. They
// go through when the line heals, also those whose caller has given up
// meanwhile; or the session ends first, because its lease runs out, after three
// quarters of its timeout at the most. Watches learn of nothing before the line
// heals or the session ends. The store, for its part, drops the session when it
// has not heard of it for its timeout.
//
// Cuts add up: the line is whole again when all have healed. A second call of
// heal does nothing.
func (f Faults) CutOff(s driver.Session) (heal func()) { return f.cut(&f.session(s).conn.cuts) }

// Down cuts all sessions off, those that live and those to come, until up is
// called: see [Faults.CutOff]. Connect fails meanwhile. The store itself goes
// on: sessions expire.
func (f Faults) Down() (up func()) { return f.cut(&f.store.cuts) }

func (f Faults) cut(cuts *int) (heal func()) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	*cuts++
	return sync.OnceFunc(func() {
		f.store.mu.Lock()
		defer f.store.mu.Unlock()
		*cuts--
		close(f.store.healed)
		f.store.healed = make(chan struct{})
	})
}

// LoseRequest breaks the connection of a session under its next request of that
// kind, before the request has reached the store. The caller gets an error that
// matches driver.ErrUnavailable. The session lives on, and all other requests
// pass. Several losses of one kind meet one request each, in turn.
func (f Faults) LoseRequest(s driver.Session, op faults.Op) { f.lose(s, loss{op: op}) }

// LoseReply is LoseRequest for a request that has reached the store: the store
// has done what the request asks for, and its reply is lost.
func (f Faults) LoseReply(s driver.Session, op faults.Op) { f.lose(s, loss{op: op, committed: true}) }

func (f Faults) lose(s driver.Session, l loss) {
	ms := f.session(s)
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	ms.conn.losses = append(ms.conn.losses, l)
}

// HoldRequest is LoseRequest for a request that arrives late: the caller gets the
// error at once, and the store serves the request when arrive is called. A call
// of arrive before the request was sent does nothing, and so does a second one.
func (f Faults) HoldRequest(s driver.Session, op faults.Op) (arrive func()) {
	h := new(held)
	f.lose(s, loss{op: op, held: h})
	return func() {
		f.store.mu.Lock()
		defer f.store.mu.Unlock()
		if h.serve != nil {
			h.serve()
			h.serve = nil
		}
	}
}

// Reset breaks the connection of a session once. Requests and replies that are
// on their way are lost: their callers get an error that matches
// driver.ErrUnavailable. The session connects again at once, and finds its
// watches and their news at the store.
func (f Faults) Reset(s driver.Session) {
	ms := f.session(s)
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	ms.conn.resets++
}

// DelayReplies makes every reply to a session take d from now on. The requests
// arrive at once. A cut that begins while a reply is on its way does not stop
// it. Zero ends the delay.
func (f Faults) DelayReplies(s driver.Session, d time.Duration) {
	ms := f.session(s)
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	ms.conn.replies = d
}

// Delay makes every request of a session take d from now on, half of it on the
// way to the store and half of it on the way back; what watches learn takes
// half of d. A session does not wait for a heartbeat that takes more than a
// quarter of its timeout, so it ends if no other request keeps it. A request
// whose caller has given up meanwhile is on its way all the same. Zero ends the
// delay, but not for what has been sent.
func (f Faults) Delay(s driver.Session, d time.Duration) {
	ms := f.session(s)
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	ms.conn.delay = d
}

// Pause plays a process that was stopped for d, or a machine that slept: when
// it goes on its clocks are d further on, but none of its timers has run yet.
// So the Err of the session tells the truth at once, and Done closes within a
// quarter of the lease, or when Err or any other method is called. For the store,
// too, d has passed: if the store has not heard of the session for its timeout
// then, it has dropped the session, and the nodes are gone when Pause returns.
func (f Faults) Pause(s driver.Session, d time.Duration) {
	ms := f.session(s)
	leasehook.Skew(ms.lease, d)
	f.store.mu.Lock()
	ms.record.heard = ms.record.heard.Add(-d)
	f.store.mu.Unlock()
	f.store.expire(ms.record)
}

// RemoveNode removes a node, as an operator may. It reports whether the node
// was there.
func (f Faults) RemoveNode(queue, name string) bool {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	q, n := f.store.find(queue, withName(name))
	if n != nil {
		f.store.remove(q, n, driver.Changed)
	}
	return n != nil
}

// RemoveQueue removes a queue with all its nodes, as an operator may: the next
// node of that name begins a new incarnation. It reports whether the queue was
// there.
func (f Faults) RemoveQueue(queue string) bool {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	q := f.store.queues[queue]
	if q == nil {
		return false
	}
	for len(q.nodes) > 0 {
		f.store.remove(q, q.nodes[0], driver.Changed)
	}
	f.store.forget(q)
	return true
}

// PutNode adds a node that belongs to no session: some other program has made
// it. If driver.ParseName takes its name for a contender's, the queue must not
// have passed that sequence yet (order could not be kept), and goes on after it.
// A node of any other name is kept but never listed. An error that matches
// driver.ErrBadName tells why the node could not be added.
func (f Faults) PutNode(queue, name string, data []byte) error {
	if err := driver.CheckQueue(queue); err != nil {
		return fmt.Errorf("mem: put %q: %w", name, err)
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	q := f.store.open(queue)
	defer f.store.updateIdle(q)
	_, seq, contender := driver.ParseName(name)
	switch {
	case name == "" || slices.ContainsFunc(q.nodes, withName(name)):
		return fmt.Errorf("mem: put %q in %q: %w: empty or taken", name, queue, driver.ErrBadName)
	case contender && seq < q.next:
		return fmt.Errorf("mem: put %q in %q: %w: the queue has got to %d", name, queue, driver.ErrBadName, q.next)
	}
	f.store.add(q, &node{
		Node: driver.Node{Name: name, Seq: seq, Epoch: q.epoch}, contender: contender, data: bytes.Clone(data),
	})
	return nil
}

// session returns what is behind a session of this store.
func (f Faults) session(s driver.Session) *session {
	ms, ok := s.(*session)
	if !ok || ms.store != f.store {
		panic(fmt.Sprintf("memdriver: %T is no session of this store", s))
	}
	return ms
}
