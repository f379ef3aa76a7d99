package zkconn

import (
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

// keepalive renews the lease of a session and sends its heartbeats.
//
// # What the store does
//
// A server records when a request of a session arrives. The leader alone
// decides that a session has timed out. A follower reports to its leader which
// sessions it has heard from whenever the leader pings it, every half tick. So
// an answer alone proves nothing: a server that has lost its leader goes on
// answering pings and reads, while the leader hears nothing and ends the
// session. A leader that was deposed and does not know it yet goes on answering
// a Sync until its syncLimit has passed, while the new leader counts by its own
// clock. A deposed leader cannot answer a write, because a write needs a
// quorum.
//
// # The rule
//
// T is the session timeout that was granted, M the margin. A touch is a request
// of the present connection that was answered. A proof is an answered write or
// Sync. A proof that was sent at s proves the latest touch that was answered at
// or before s - g. It proves the connect request in any case, because a server
// asks its leader before it accepts a session. g is T/4, or 0.55 ticks if the
// data source name states the tick and that is less.
//
// The session keeps two instants:
//
//	weak    the sending time m of the latest proven touch
//	strong  the earlier of m and w, where w is the sending time of the latest
//	        answered write of the same connection as m
//
// Both only grow, and both outlive a reconnect. On a new connection, strong
// does not change until a write has been answered on it. As long as a node of
// the session may hold a lock, or a Create is in flight, the lease counts from
// strong; otherwise it counts from the later of the two. When a session comes
// to have its first such node, the lease is set back to strong before the
// caller learns of that node. The lease ends T - M after the instant that it
// counts from.
//
// A node only waits as long as there is an open watch of it and of nodes ahead
// of it: the contract says that its contender does not act as a holder then. So
// a session whose nodes all wait needs no writes. The watch ends, or sends
// Released, only after the lease was set back to strong with enough of it left;
// confirm sends a write for that if the latest one is old. If the watch was
// stopped, the contender lists before it acts as a holder, and the list waits
// for the same.
//
// # Why no other session is granted a lock before the lease ends
//
// Let the leader of epoch e time the session out at c, and let the write that
// was sent at w be committed in epoch f. Then c >= min(w, m) + T:
//
//   - e is later than f. A quorum acknowledged the write before a server of
//     that quorum accepted e. So the leader of e began after w. A new leader
//     gives every session its full T.
//   - e is f. The touch had reached the server when it was answered. The server
//     reported it within half a tick, which is less than g, and so before the
//     proof left. The leader receives in order, and a proof is answered only
//     after the leader has handled it. So the leader had heard of m when it
//     handled the proof, and counted T from then. A write and a Sync on one
//     connection go to the same leader, because a server closes its clients'
//     connections when it changes its leader.
//   - e is earlier than f. Then the session was over before the write was
//     committed, and the write would have been refused.
//
// So while the lease counts from strong and has not ended, no leader has timed
// the session out, and its nodes exist. "Every node ahead has gone" never
// becomes untrue. So late reports of a deposed leader do no harm: a list, an
// event, or a hand-over without a list.
//
// A lease that counts from weak is not protected like that: a deposed leader
// goes on answering Syncs. It does not need the protection. Such a session has
// no node, or only nodes whose contenders were not granted a lock, and they are
// granted none before a write was answered. A deposed leader cannot answer a
// write, and every leader refuses it if the session is over. Without that
// write, a waiter that learns of a release late, from a deposed leader, would
// hold the lock at the same time as another contender.
//
// # Assumptions
//
//   - The clocks of client and servers run alike: over a time of T they drift
//     apart by less than M.
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
// A heartbeat is a Sync. In a session that may hold a lock, the first heartbeat
// on a connection is a write, and so is every (n+1)-th after that. They are
// sent p apart, p = (g + r) / n, where r is a round trip. No heartbeat waits
// for the answer to the one before. Each one proves the n-th before it. So just
// before a renewal arrives, the lease counts from an instant that is (n+1) * p
// + r ago. If an outage begins then, the session reports its end T - M - (n+1)
// * p - r later.
//
// n is 2 if the tick is not stated, and 1 if g is small. If all nodes wait, n
// is 1 and p is at least T/4, if the term allows for that. n rises with r.
type keepalive struct {
	lease  *driver.Lease
	duty   func() Duty
	wake   chan struct{}      // capacity 1: something has changed
	proofs singleflight.Group // concurrent calls of confirm share one write

	mu               sync.Mutex
	countsFromStrong bool // the lease has counted from strong since hold
	schedule         *schedule
	number           uint64 // of the present connection
}

func newKeepalive(s *schedule, lease *driver.Lease, duty func() Duty) *keepalive {
	return &keepalive{schedule: s, lease: lease, duty: duty, wake: make(chan struct{}, 1)}
}

// connected starts a new connection. Requests of an earlier connection, perhaps
// to another server, may never have reached the leader.
func (k *keepalive) connected(asked, now driver.Instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.connected(asked, now, k.number == 0)
	k.number++
	k.wakeRun()
}

// disconnected stops heartbeats until the next connection.
func (k *keepalive) disconnected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.detached()
}

// answered records an answered request of the connection of that number, and
// renews the lease if the answer is a proof. An answer on an earlier connection
// counts for nothing.
func (k *keepalive) answered(number uint64, r reach, sent, now driver.Instant, isHeartbeat bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number != k.number {
		return
	}
	k.schedule.answered(r, sent, now, isHeartbeat)
	if r != toServer {
		d := k.duty()
		k.countsFromStrong = k.countsFromStrong && d == Holding
		k.lease.Renew(k.schedule.leaseStart(d))
	}
}

// errNoWrite says that no write has been answered on the present connection.
var errNoWrite = errors.New("no write has been answered on this connection")

// hold makes the lease count from schedule.strong, for a session that comes to
// have a node which may hold a lock. Its duty must be Holding by then.
func (k *keepalive) hold() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holdAtLeast(k.schedule.timeout / 20)
}

func (k *keepalive) holdAtLeast(least time.Duration) error {
	if k.schedule.written == never {
		return errNoWrite
	}
	err := k.lease.CountFrom(k.schedule.strong, least)
	k.countsFromStrong = err == nil
	return err
}

// confirmed reports whether the lease counts from schedule.strong, or no node
// of the session may hold a lock. If the latest write is recent, confirmed
// makes the lease count from there. Otherwise that needs a write: see confirm.
func (k *keepalive) confirmed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.countsFromStrong || k.duty() != Holding || k.lease.Err() != nil {
		return true
	}
	fresh := k.schedule.written != never && k.lease.Now().Sub(k.schedule.written) <= k.schedule.timeout*3/8
	return fresh && k.holdAtLeast(k.schedule.timeout/5) == nil
}

// confirm makes the lease count from schedule.strong before contenders that
// have waited may act as holders. It calls write to send a write. One write
// serves all of them.
func (k *keepalive) confirm(write func() error) error {
	if k.confirmed() {
		return nil
	}
	_, err, _ := k.proofs.Do("", func() (any, error) {
		if k.confirmed() { // since the call of another contender
			return nil, nil
		}
		defer k.heartbeatEnded(k.noteProof()) // so that run does not send a write as well
		return nil, k.proveAndHold(write)
	})
	return err
}

// noteProof records that a write is sent now, as if the schedule had asked for
// it.
func (k *keepalive) noteProof() (id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.schedule.noteSent(toQuorum, k.lease.Now())
}

// proveAndHold sends a write and then holds. It tries again if the connection
// breaks.
func (k *keepalive) proveAndHold(write func() error) (err error) {
	for range 3 {
		if err = write(); err == nil {
			err = k.hold()
		}
		if err == nil || k.lease.Err() != nil {
			break
		}
	}
	return err
}

// connection returns the number of the present connection.
func (k *keepalive) connection() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.number
}

// wakeRun has run look at the schedule again.
func (k *keepalive) wakeRun() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run sends heartbeats until the lease ends, whether or not the session is
// used. It calls send for each one. send must not wait for the answer, and must
// call ended when the request has been answered or has failed. run calls giveUp
// to close a connection that does not answer.
func (k *keepalive) run(send func(r reach, ended func()), giveUp func(connection uint64)) {
	timer := time.NewTimer(k.schedule.timeout)
	defer timer.Stop()
	for k.lease.Err() == nil {
		next := k.next()
		if next.giveUp {
			giveUp(next.connection)
		}
		if next.ended != nil {
			send(next.reach, next.ended)
			continue
		}
		timer.Reset(next.wait)
		select {
		case <-k.lease.Done():
		case <-timer.C:
		case <-k.wake:
		}
	}
}

// step is what run does next.
type step struct {
	giveUp     bool // close the connection
	connection uint64
	reach      reach // of the heartbeat to send, if ended is set
	ended      func()
	wait       time.Duration // until the next step
}

// next returns the next step.
func (k *keepalive) next() step {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.lease.Now()
	next := step{connection: k.number, wait: k.schedule.timeout} // wakeRun ends the wait
	if left, ok := k.schedule.giveUpIn(now, k.duty()); ok {
		if left <= 0 {
			k.schedule.detached()
			next.giveUp = true
			return next
		}
		next.wait = left
	}
	r, due, ok := k.schedule.due(now, k.duty())
	switch {
	case ok && due > 0:
		next.wait = min(next.wait, due)
	case ok:
		id := k.schedule.noteSent(r, now)
		next.reach, next.ended = r, func() { k.heartbeatEnded(id) }
	}
	return next
}

// heartbeatEnded records that a heartbeat was answered or has failed.
func (k *keepalive) heartbeatEnded(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.noteEnded(id)
	k.wakeRun()
}
