package memdriver

import (
	"bytes"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
)

// Expire ends a session as a store does that has not heard of it for too long:
// first the session's lease has run out (Done closes, and so do its watches),
// then its nodes go. They are gone when Expire returns.
//
// Like all faults it may be played at any time and from any goroutine, and it
// panics if s is not a session of this store.
func (st *Store) Expire(s driver.Session) {
	ms := st.own(s)
	ms.lease.End(errExpired)
	<-ms.ended
	ms.record.end()
}

// CutOff cuts the line between a session and the store until heal is called, as
// a network does that drops packets: nobody is told. Requests wait. They go
// through when the line heals, also those whose caller has given up meanwhile;
// or the session ends first, because its lease runs out, after three quarters
// of its timeout at the most. The end of a watch is not heard of before the line
// heals or the session ends. The store, for its part, drops the session when it
// has not heard of it for its timeout.
//
// Cuts add up: the line is whole again when all have healed. A second call of
// heal does nothing.
func (st *Store) CutOff(s driver.Session) (heal func()) {
	return st.own(s).line.own.cut()
}

// Down cuts all sessions off, those that live and those to come, until up is
// called: see [Store.CutOff]. Connect fails meanwhile. The store itself goes
// on: sessions expire.
func (st *Store) Down() (up func()) { return st.reach.cut() }

// LoseReply breaks the connection of a session under its next request of that
// kind: before the request has reached the store, or, if committed, after the
// store has done what it asks for. Either way the caller gets an error that
// matches driver.ErrUnavailable. The session lives on, and all other requests
// pass. Several losses of one kind meet one request each, in turn.
func (st *Store) LoseReply(s driver.Session, op Op, committed bool) {
	if op < 0 || op >= opCount {
		panic(fmt.Sprintf("memdriver: no request of kind %d", op))
	}
	what := requestLost
	if committed {
		what = replyLost
	}
	st.own(s).line.lose(op, what)
}

// Delay makes every request of a session take d from now on, half of it on the
// way to the store and half of it on the way back; the end of a watch takes
// half of d. A request whose caller has given up meanwhile is on its way all
// the same. Zero ends the delay, but not for what has been sent.
func (st *Store) Delay(s driver.Session, d time.Duration) {
	st.own(s).line.setDelay(d)
}

// Pause plays a process that was stopped for d, or a machine that slept: when
// it goes on its clocks are d further on, but none of its timers has run yet.
// So the Err of the session tells the truth at once, and Done closes within a
// quarter of the lease, or when Err or any other method is called. For the store, too, d has
// passed: if it has not heard of the session for its timeout then, it has
// dropped it, and the nodes are gone when Pause returns.
func (st *Store) Pause(s driver.Session, d time.Duration) {
	ms := st.own(s)
	leasehook.Skew(ms.lease, d)
	ms.record.age(d)
}

// RemoveNode removes a node, as an operator may. It reports whether the node
// was there.
func (st *Store) RemoveNode(queue, name string) bool {
	sh := st.shard(queue)
	sh.lock()
	defer sh.unlock()
	n := sh.find(queue, name)
	if n != nil {
		sh.remove(n, driver.Changed)
	}
	return n != nil
}

// RemoveQueue removes a queue with all its nodes, as an operator may: the next
// node of that name begins a new incarnation. It reports whether the queue was there.
func (st *Store) RemoveQueue(queue string) bool {
	sh := st.shard(queue)
	sh.lock()
	defer sh.unlock()
	q := sh.queues[queue]
	if q == nil {
		return false
	}
	for n := range q.nodes.all() {
		sh.remove(n, driver.Changed)
	}
	sh.fire(&q.watches, driver.Changed)
	sh.forget(q)
	return true
}

// PutNode adds a node that belongs to no session: some other program has made
// it. If driver.ParseName takes its name for a contender's, the queue must not
// have passed that sequence yet (order could not be kept), and goes on after it.
// A node of any other name is kept but never listed. An error that matches
// driver.ErrName tells why the node could not be added.
func (st *Store) PutNode(queue, name string, data []byte) error {
	if err := driver.CheckQueue(queue); err != nil {
		return fmt.Errorf("mem: put %q: %w", name, err)
	}
	sh := st.shard(queue)
	sh.lock()
	defer sh.unlock()
	q := st.open(sh, queue)
	defer sh.settle(q)
	_, seq, sequenced := driver.ParseName(name)
	switch {
	case name == "" || q.byName[name] != nil:
		return fmt.Errorf("mem: put %q in %q: %w: empty or taken", name, queue, driver.ErrName)
	case sequenced && seq < q.next:
		return fmt.Errorf("mem: put %q in %q: %w: the queue has got to %d", name, queue, driver.ErrName, q.next)
	case sequenced:
		q.next = seq + 1
	}
	sh.add(&node{
		queue: q, name: name, seq: seq, epoch: q.epoch, token: st.tokens.Add(1), sequenced: sequenced,
		data: bytes.Clone(data), created: time.Now(),
	})
	return nil
}

// own returns what is behind a session of this store.
func (st *Store) own(s driver.Session) *session {
	ms, ok := s.(*session)
	if !ok || ms.store != st {
		panic(fmt.Sprintf("memdriver: %T is no session of this store", s))
	}
	return ms
}
