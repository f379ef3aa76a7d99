package zkdriver

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

// beats keeps the lease of a session: what renews it, and which heartbeats are
// sent for that.
//
// # What the store does
//
// A server notes when a request of a session arrives. The leader alone decides
// that a session has timed out. A follower reports to its leader of which
// sessions it has heard when the leader pings it, every half tick. So an answer
// alone proves nothing: a server that has lost its leader goes on answering
// pings and reads, while the leader hears nothing and ends the session. A
// leader that has been deposed without knowing it yet goes on answering a sync
// until its syncLimit has passed, while the new leader counts by its own clock.
// It cannot answer a write, because a write takes a quorum.
//
// # The rule
//
// T is the session timeout that was granted, M the margin. A mark is a request
// of the present connection that was answered. A proof is an answered write or
// sync. A proof that was sent at s proves the latest mark that was answered at
// or before s - g. It proves the connect request in any case, because a server
// asks its leader before it accepts a session. g is T/4, or 0.55 ticks if the
// data source name states the tick and that is less.
//
// The session keeps two instants:
//
//	loose  the sending time m of the latest proven mark
//	sure   the earlier of m and w, where w is the sending time of the latest
//	       answered write of the same connection as m
//
// Both only grow, and both outlive a reconnect. On a new connection sure
// stands still until a write has been answered on it. As long as a node of the
// session may hold a lock, or a Create is in flight, the lease counts from sure;
// else from the later of the two. When a session comes to hold its first node,
// the lease is set back to sure before the caller learns of that. The lease ends
// T - M after the instant that it counts from.
//
// A node only waits as long as there is an open watch of it and of nodes ahead
// of it: the contract says that its contender does not act as a holder then. So
// a session whose nodes all wait needs no writes. The watch ends, or sends
// Released, only after the lease was set back to sure with enough of it left;
// settle sends a write for that if the latest one is old. If the watch was
// stopped, the contender lists before it acts as a holder, and the list waits
// for the same.
//
// # Why no other session is granted a lock before the lease ends
//
// Let the leader of epoch e time the session out at c, and let the write that
// was sent at w be committed in epoch f. Then c >= min(w, m) + T:
//
//   - e is later than f. A quorum acknowledged the write before a server of that
//     quorum accepted e. So the leader of e began after w. A new leader gives
//     every session its full T.
//   - e is f. The mark had reached the server when it was answered. The server
//     reported it within half a tick, which is less than g, and so before the
//     proof left. The leader receives in order, and a proof is answered only
//     after the leader has handled it. So the leader had heard
//     of m when it handled the proof, and counted T from then. A write and a
//     sync on one connection go to the same leader, because a server closes its
//     clients' connections when it changes its leader.
//   - e is earlier than f. Then the session was over before the write was
//     committed, and the write would have been refused.
//
// So while the lease counts from sure and has not ended, no leader has timed
// the session out, and its nodes stand. "Every node ahead has gone" never
// becomes untrue. So late news from a deposed leader do no harm: a list, an
// event, or a hand-over without a list.
//
// A loose lease has not got this protection: a deposed leader goes on answering
// syncs. It does not need it. A session that counts from loose owns no node, or
// only nodes whose contenders have not been granted a lock, and they are granted
// none before a write was answered: which a deposed leader cannot do, and which
// every leader refuses if the session is over. Without that write a waiter on a
// deposed leader that hears late of a release would hold beside another.
//
// # What it takes for granted
//
//   - Clocks run alike, within M over T.
//   - A leader's ping reaches the server within g. One that is later by less
//     than g - tick/2 + M does no harm.
//   - Half a tick is at most g. T is at least two ticks by default, so T/4 is
//     enough. An observer that is connected to a follower (observerMasterPort)
//     reports through that follower. There g has to be a whole tick: T has to
//     be at least four ticks, and a stated tick has to be stated doubled.
//   - A tick that is stated in the data source name is not smaller than that of
//     the ensemble. The driver cannot check this.
//
// # The schedule
//
// A heartbeat is a sync. In a session that may hold a lock, the first one on a
// connection is a write, and so is every (n+1)-th after that. They are sent p
// apart, p = (g + r) / n, where r is a round trip. No heartbeat waits for the
// answer to the one before. The n-th before is the mark that each one proves, so
// just before a renewal arrives, the lease counts from an instant that is
// (n+1) * p + r ago. An outage that begins then is told T - M - (n+1) * p - r
// later.
//
// n is 2 where the tick is not stated, and 1 where g is small. Where all nodes
// wait, n is 1 and p is T/4 at least, if the term allows for that. n rises with r.
type beats struct {
	lease  *driver.Lease
	duty   func() duty
	wake   chan struct{}      // capacity 1: something has changed
	proofs singleflight.Group // concurrent calls of settle share one write

	mu         sync.Mutex
	firm       bool // the lease has counted from sure since hold
	schedule   *schedule
	generation uint64 // the number of the connection
}

func newBeats(s *schedule, lease *driver.Lease, duty func() duty) *beats {
	return &beats{schedule: s, lease: lease, duty: duty, wake: make(chan struct{}, 1)}
}

// connected starts a new connection. Requests of an earlier one, perhaps to
// another server, may never have reached the leader.
func (b *beats) connected(asked, now driver.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.schedule.connected(asked, now, b.generation == 0)
	b.generation++
	b.changed()
}

// disconnected stops heartbeats until the next connection.
func (b *beats) disconnected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.schedule.detached()
}

// answered notes an answered request of that connection, and renews the lease if
// the answer is a proof. An answer on an earlier connection counts for nothing.
func (b *beats) answered(generation uint64, p part, sent, now driver.Instant, isHeartbeat bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation != b.generation {
		return
	}
	b.schedule.answered(p, sent, now, isHeartbeat)
	if p != server {
		d := b.duty()
		b.firm = b.firm && d == holding
		b.lease.Renew(b.schedule.from(d))
	}
}

// errNoWrite says that no write has been answered on the present connection.
var errNoWrite = errors.New("no write has been answered on this connection")

// hold makes the lease count from sure, for a session that comes to hold a
// node. Its duty has to be holding by then.
func (b *beats) hold() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.holdAtLeast(b.schedule.timeout / 20)
}

func (b *beats) holdAtLeast(least time.Duration) error {
	if b.schedule.written == never {
		return errNoWrite
	}
	err := b.lease.CountFrom(b.schedule.sure, least)
	b.firm = err == nil
	return err
}

// settled reports whether the lease counts from sure, or no node of the session
// may hold a lock. If the latest write is recent, it makes the lease count from
// sure. Otherwise that takes a write: see settle.
func (b *beats) settled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.firm || b.duty() != holding || b.lease.Err() != nil {
		return true
	}
	fresh := b.schedule.written != never && b.lease.Now().Sub(b.schedule.written) <= b.schedule.timeout*3/8
	return fresh && b.holdAtLeast(b.schedule.timeout/5) == nil
}

// settle makes the lease count from sure before contenders that have waited may
// act as holders. It calls prove to send a write. One write serves all of them.
func (b *beats) settle(prove func() error) error {
	if b.settled() {
		return nil
	}
	_, err, _ := b.proofs.Do("", func() (any, error) {
		if b.settled() { // since the call of another contender
			return nil, nil
		}
		defer b.ended(b.sending()) // run sends no write as well
		return nil, b.proveAndHold(prove)
	})
	return err
}

// sending notes that a write is sent now, as if the schedule had asked for it.
func (b *beats) sending() (id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.schedule.send(quorum, b.lease.Now())
}

// proveAndHold sends a write first. It tries again if the connection breaks.
func (b *beats) proveAndHold(prove func() error) (err error) {
	for range 3 {
		if err = prove(); err == nil {
			err = b.hold()
		}
		if err == nil || b.lease.Err() != nil {
			break
		}
	}
	return err
}

// hold makes the lease count for a session that comes to own a node. It sends a
// write if the answer to the Create does not count, because the session went to
// another connection meanwhile.
func (s *session) hold() error {
	err := s.beats.hold()
	if errors.Is(err, errNoWrite) {
		return s.beats.proveAndHold(s.prove)
	}
	return err
}

// settle is beats.settle. Its caller holds no mutex.
func (s *session) settle() error { return s.beats.settle(s.prove) }

// settleOrEnd returns when settle has succeeded, or the lease has ended.
func (s *session) settleOrEnd() {
	for s.settle() != nil {
		pause := time.NewTimer(s.beats.schedule.timeout / 40)
		select {
		case <-pause.C:
		case <-s.lease.Done():
			pause.Stop()
			return
		}
	}
}

// present returns the number of the connection.
func (b *beats) present() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.generation
}

// changed wakes run.
func (b *beats) changed() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// run sends heartbeats until the lease ends, whether or not the session is used.
// It calls send for each one, which must not wait for the answer but call ended
// when the request has been answered or has failed. It calls cut to give a
// connection up that does not answer.
func (b *beats) run(send func(what part, ended func()), cut func(generation uint64)) {
	timer := time.NewTimer(b.schedule.timeout)
	defer timer.Stop()
	for b.lease.Err() == nil {
		next := b.next()
		if next.cut {
			cut(next.generation)
		}
		if next.ended != nil {
			send(next.what, next.ended)
			continue
		}
		timer.Reset(next.wait)
		select {
		case <-b.lease.Done():
		case <-timer.C:
		case <-b.wake:
		}
	}
}

// step is what run does next.
type step struct {
	cut        bool // give the connection up
	generation uint64
	what       part // send a heartbeat, if ended is set
	ended      func()
	wait       time.Duration // until the next step
}

// next takes the next step.
func (b *beats) next() step {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.lease.Now()
	next := step{generation: b.generation, wait: b.schedule.timeout} // changed ends the wait
	if left, ok := b.schedule.hopeless(now, b.duty()); ok {
		if left <= 0 {
			b.schedule.detached()
			next.cut = true
			return next
		}
		next.wait = left
	}
	what, due, ok := b.schedule.due(now, b.duty())
	switch {
	case ok && due > 0:
		next.wait = min(next.wait, due)
	case ok:
		id := b.schedule.send(what, now)
		next.what, next.ended = what, func() { b.ended(id) }
	}
	return next
}

// ended notes that a heartbeat was answered, or failed.
func (b *beats) ended(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.schedule.ended(id)
	b.changed()
}

// heartbeat sends one, and does not wait for the answer.
func (s *session) heartbeat(what part, ended func()) {
	s.work(func() {
		defer ended()
		s.count(what, true, func() error {
			if what == quorum {
				return s.check()
			}
			_, err := s.conn.Sync("/")
			return err
		})
	})
}
