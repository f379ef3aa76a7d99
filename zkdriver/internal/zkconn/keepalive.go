package zkconn

import (
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// keepalive renews the lease of a session and sends its heartbeats.
//
// # What the store does
//
// A server records when a request of a session arrives, but the leader alone
// decides that a session has timed out. A follower reports which sessions it
// has heard from whenever its leader pings it, every half tick. So an answer
// alone proves nothing: a server that has lost its leader goes on answering
// pings and reads, while the leader hears nothing and ends the session. A
// deposed leader that does not know of the new one cannot answer a write, which
// needs a quorum. But it answers Syncs until its syncLimit has passed, while
// the new leader counts by its own clock.
//
// # The rule
//
// T is the granted session timeout, and M is the margin. A touch is an answered
// request of the current connection. A proof is an answered write or Sync. A
// proof sent at the instant s proves the latest touch that was answered at or
// before s - g. It also proves the connect request, whenever that was answered,
// because a server asks its leader before it accepts a session. The gap g is
// T/4, or 0.55 ticks if the data source name states the tick and 0.55 ticks are
// less.
//
// The session keeps two instants:
//
//	weak    the sending time m of the latest proven touch
//	strong  the earlier of m and w, where w is the sending time of the latest
//	        answered write of the same connection as m
//
// Both instants only grow, and survive a reconnect. On a new connection, strong
// does not change until a write has been answered on it. The lease ends T - M
// after the instant that it counts from. While the session has a node, that is
// strong, whether the node holds a lock or waits for one. Otherwise, it is the
// later of the two instants. Before Create returns a node, the lease is set
// back to strong.
//
// # Why no other session is granted a lock before the lease ends
//
// In this proof an epoch is the term of one leader of the ensemble. Let the
// leader of epoch e time the session out at c, and let the write that was sent
// at w be committed in epoch f. Then c >= min(w, m) + T:
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
// the session out, and its nodes exist. And once all nodes ahead of a node have
// gone, no other node gets ahead of it. So a list or an event may come late,
// from a deposed leader: if it comes before the lease ends, it is still true,
// and if it comes later, it grants nothing, because package recipes reads the
// lease at the grant.
//
// # Assumptions
//
//   - The clocks of client and servers run alike: over a time of T they drift
//     apart by less than M.
//   - A leader's ping reaches the server within g. A ping that is later by less
//     than g - tick/2 + M does no harm.
//   - Half a tick is at most g. T is at least two ticks by default, so T/4 is
//     enough. An observer that is connected to a follower (observerMasterPort)
//     reports through that follower. Then g has to be a whole tick: T has to be
//     at least four ticks, and tick_time, if set, twice the ensemble's tick.
//   - A tick that is stated in the data source name is not smaller than that of
//     the ensemble. The driver cannot check this.
//
// # The schedule
//
// A heartbeat is a Sync. In a session with nodes, the first heartbeat on a
// connection is a write, and so is every (n+1)-th after that. Heartbeats are
// sent at intervals of p = (g + r) / n, where r is a round trip, without waiting
// for the answer to the one before. Each heartbeat proves the n-th one before
// it. So just before a renewal arrives, the lease counts from an instant that is
// (n+1) * p + r ago. If an outage begins at that moment, the lease ends
// T - M - (n+1) * p - r later.
//
// n is 2 if the tick is not stated, and 1 if g is small. n grows with r.
type keepalive struct {
	lease    *driver.Lease
	hasNodes func() bool
	wake     chan struct{} // wakes run to compute its next step again

	mu       sync.Mutex
	schedule *schedule
	number   uint64 // number of the current connection
}

func newKeepalive(s *schedule, lease *driver.Lease, hasNodes func() bool) *keepalive {
	return &keepalive{schedule: s, lease: lease, hasNodes: hasNodes, wake: make(chan struct{}, 1)}
}

func (k *keepalive) outage() (kept, survived time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.schedule.outage()
}

func (k *keepalive) addressesAre(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.addresses = n
}

// connected invalidates earlier answers: their server may lack a leader now.
func (k *keepalive) connected(asked, now driver.Instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.connected(asked, now, k.number == 0)
	k.number++
	k.wakeRun()
}

func (k *keepalive) disconnected() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.detached()
}

// answered renews the lease if a request of the current connection proves the
// session alive.
func (k *keepalive) answered(number uint64, r reach, sent, now driver.Instant, isHeartbeat bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if number != k.number {
		return
	}
	k.schedule.answered(r, sent, now, isHeartbeat)
	if r != toServer {
		k.lease.Renew(k.schedule.leaseStart(k.hasNodes()))
	}
}

var errNoWrite = errors.New("no write has been answered on this connection")

// countFromWrite makes the lease count from schedule.strong, unless that leaves
// too little of it.
func (k *keepalive) countFromWrite() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.schedule.written == never {
		return errNoWrite
	}
	return k.lease.CountFrom(k.schedule.strong, k.schedule.timeout/20)
}

func (k *keepalive) connection() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.number
}

func (k *keepalive) wakeRun() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run sends heartbeats until the lease ends, and gives up silent connections.
// The function send must not block, and later calls ended.
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

type step struct {
	giveUp     bool // close the connection
	connection uint64
	reach      reach // meaningful only if ended is set
	ended      func()
	wait       time.Duration // until the next step
}

func (k *keepalive) next() step {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.lease.Now()
	next := step{connection: k.number, wait: k.schedule.timeout} // wakeRun may end the wait earlier
	if left, ok := k.schedule.giveUpIn(now); ok {
		if left <= 0 {
			k.schedule.detached()
			next.giveUp = true
			return next
		}
		next.wait = left
	}
	r, due, ok := k.schedule.due(now, k.hasNodes())
	switch {
	case ok && due > 0:
		next.wait = min(next.wait, due)
	case ok:
		id := k.schedule.noteSent(r, now)
		next.reach, next.ended = r, func() { k.heartbeatEnded(id) }
	}
	return next
}

func (k *keepalive) heartbeatEnded(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.noteEnded(id)
	k.wakeRun()
}
