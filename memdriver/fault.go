package memdriver

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/leasehook"
)

// Faults injects faults into a store and its sessions: see [Store.Faults].
//
// All methods may be called at any time and concurrently. They panic if given a
// session of another store.
type Faults struct{ store *Store }

// Faults returns the handle by which a test makes the store fail.
func (st *Store) Faults() Faults { return Faults{st} }

// Expire ends a session as if the store had not heard from it for the session
// timeout. First the lease ends: Done closes, and all watches end. Then the
// store drops the session and removes its nodes. All this is done when Expire
// returns.
func (f Faults) Expire(s driver.Session) { f.expire(f.session(s)) }

// ExpireAll expires all sessions: see [Faults.Expire]. It is for tests of
// programs that have a client, but no session to pass to Expire. When ExpireAll
// returns, every lock is lost, and Lock.Err says so. Waiters of these sessions
// get no lock meanwhile. A client opens a new session when it needs one.
func (f Faults) ExpireAll() { f.expire(f.all()...) }

func (f Faults) expire(all ...*session) {
	for _, s := range all {
		s.lease.End(errExpired)
	}
	for _, s := range all {
		<-s.ended
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for _, s := range all {
		f.store.drop(s.record)
	}
}

// Drop ends a session in the store only, as an operator may do. The nodes are
// gone when Drop returns. The client learns of this with its next request,
// which may be a heartbeat.
func (f Faults) Drop(s driver.Session) { f.on(s, func(ms *session) { f.store.drop(ms.record) }) }

// CutOff cuts a session's connection until heal is called, like a network that
// drops packets. Neither side is notified.
//
//   - Requests wait until the cut heals, and arrive then, even if their callers
//     have given up.
//   - Notices of watches wait in the same way.
//   - If the cut lasts too long, the lease runs out, after three quarters of the
//     session timeout at most. The session and its watches end then.
//   - The store drops the session when it has not heard from it for its timeout.
//
// Cuts may overlap: the connection works again when all of them have healed.
// Calling heal again is a no-op.
func (f Faults) CutOff(s driver.Session) (heal func()) { return f.cut(&f.session(s).conn.cuts) }

// Down cuts the connections of all sessions until up is called: see
// [Faults.CutOff]. Meanwhile Connect returns an error. The store itself goes
// on, so sessions expire.
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

// LoseRequest loses the session's next request of that kind, as if the
// connection broke before the request reached the store. The caller gets an
// error that matches driver.ErrUnavailable. The session lives on. Each call
// loses one request.
func (f Faults) LoseRequest(s driver.Session, op faults.Op) { f.lose(s, loss{op: op}) }

// LoseReply is like LoseRequest, but the store carries out the request.
func (f Faults) LoseReply(s driver.Session, op faults.Op) { f.lose(s, loss{op: op, committed: true}) }

func (f Faults) lose(s driver.Session, l loss) {
	f.on(s, func(ms *session) { ms.conn.losses = append(ms.conn.losses, l) })
}

func (f Faults) on(s driver.Session, do func(*session)) {
	ms := f.session(s)
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	do(ms)
}

// HoldRequest is like LoseRequest, but the request reaches the store when
// arrive is called. The caller gets the error at once. Calling arrive is a
// no-op before the request was sent and after it has arrived.
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

// Reset breaks a session's connection once. Requests and replies in flight are
// lost: their callers get an error that matches driver.ErrUnavailable. The
// session reconnects at once. No notice of a watch is lost.
func (f Faults) Reset(s driver.Session) { f.on(s, func(ms *session) { ms.conn.resets++ }) }

// DelayReplies delays every later reply to a session by d; zero ends the delay.
// Requests are not delayed. A cut that begins while a reply is in flight does
// not stop the reply.
func (f Faults) DelayReplies(s driver.Session, d time.Duration) {
	f.on(s, func(ms *session) { ms.conn.replies = d })
}

// Delay makes every later request, reply and notice take half of d, so that a
// call takes d. Zero ends the delay, except for messages already sent.
//
// A heartbeat gives up after a quarter of the session timeout. With a longer
// delay, the session ends unless another request renews its lease. Requests
// continue even if their callers give up.
func (f Faults) Delay(s driver.Session, d time.Duration) {
	f.on(s, func(ms *session) { ms.conn.delay = d })
}

// Pause simulates a pause of the session's process, or a sleep of its machine:
// the clocks that the session reads jump ahead by d, but its timers have not
// fired yet. If the lease has run out, Err returns an error at once, while Done
// closes with the session's next call, or after a quarter of the lease's term
// at the latest.
//
// In the store, d has passed, too. If that exceeds the session timeout, the
// session's nodes are gone when Pause returns.
func (f Faults) Pause(s driver.Session, d time.Duration) { f.pause(d, f.session(s)) }

// PauseAll pauses all sessions for d: see [Faults.Pause]. It is for tests of
// programs that use locks, because all clients of such a program usually share
// one process. It returns at once. After a pause longer than the session
// timeout, every lock is lost: Lock.Err says so at once, but Lost and the
// lock's contexts close later.
func (f Faults) PauseAll(d time.Duration) { f.pause(d, f.all()...) }

func (f Faults) pause(d time.Duration, all ...*session) {
	for _, s := range all {
		leasehook.Skew(s.lease, d)
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for _, s := range all {
		s.record.heard = s.record.heard.Add(-d)
	}
	for _, s := range all {
		f.store.dropIfSilent(s.record)
	}
}

// RemoveNode removes a node, as an operator does, and reports if it existed.
func (f Faults) RemoveNode(queue, name string) bool {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	q, n := f.store.find(queue, withName(name))
	if n != nil {
		f.store.remove(q, n, driver.Changed)
	}
	return n != nil
}

// RemoveQueue removes a queue with all its nodes, as an operator may do, and
// reports whether it existed. If the queue is recreated, it has a new epoch,
// and its sequences start over.
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

// PutNode adds a node that belongs to no session, as another program may do.
// List returns it only if driver.ParseName accepts the name. In that case, the
// sequence in the name must not be lower than the queue's next one, and the
// queue continues after it. If the node cannot be added, the error matches
// driver.ErrBadName and gives the reason.
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
		return fmt.Errorf("mem: put %q in %q: %w: the name is empty or taken", name, queue, driver.ErrBadName)
	case contender && seq < q.next:
		return fmt.Errorf("mem: put %q in %q: %w: the next sequence of the queue is %d", name, queue, driver.ErrBadName, q.next)
	}
	f.store.add(q, &node{
		Node: driver.Node{Name: name, Seq: seq, Epoch: q.epoch}, contender: contender, data: bytes.Clone(data),
	})
	return nil
}

func (f Faults) all() []*session {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return slices.Clone(f.store.sessions)
}

func (f Faults) session(s driver.Session) *session {
	ms, ok := s.(*session)
	if !ok || ms.store != f.store {
		panic(fmt.Sprintf("memdriver: %T is not a session of this store", s))
	}
	return ms
}
