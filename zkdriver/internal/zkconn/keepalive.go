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
// A server records when a request of a session arrives, but the leader alone
// decides that a session has timed out. A follower reports which sessions it
// has heard from whenever its leader pings it, every half tick. So an answer
// alone proves nothing: a server that has lost its leader goes on answering
// pings and reads, while the leader hears nothing and ends the session. A
// deposed leader that does not know it yet goes on answering a Sync until its
// syncLimit has passed, while the new leader counts by its own clock. It cannot
// answer a write, because a write needs a quorum.
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
// does not change until a write has been answered on it. As long as a node of
// the session may hold a lock, or a Create is in flight, the lease counts from
// strong. Otherwise it counts from the later of the two instants. When the
// session gets its first node that may hold a lock, the lease is set back to
// strong before the caller learns of that node. The lease ends T - M after the
// instant that it counts from.
//
// A node only waits as long as there is an open watch of it and of nodes ahead
// of it: package driver requires that its contender does not act as a holder
// during that time. So a session whose nodes all only wait needs no writes.
// Before such a watch ends, or sends Released, the lease is set back to strong,
// and enough of the lease must be left; if the latest write is too old for
// that, confirm sends a write. To keep a grant from waiting for that write, the
// session of a waiter that is next in line (see Next) sends it earlier, and
// repeats it while the waiter is next in line. A contender that has stopped its
// watch lists the queue before it acts as a holder, and the list waits for the
// same write.
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
// gone, no other node gets ahead of it. So late reports of a deposed leader,
// whether they are a list, an event, or a hand-over without a list, do no harm.
//
// A lease that counts from weak is not protected like that, because a deposed
// leader goes on answering Syncs. It need not be: the session has no node, or
// only nodes whose contenders were not granted a lock and will not be before a
// write was answered. A deposed leader cannot answer a write, and every leader
// refuses the write if the session is over. Without that write, a waiter that
// learns of a release late, from a deposed leader, would hold the lock at the
// same time as another contender.
//
// The proof does not depend on why or when the write was sent. So it does not
// matter whether a session is right to believe that it is next in line, or that
// it learns so from a server that may have been deposed. The test in confirmed
// alone decides: either the lease counts from strong, which only an answered
// write advances, or no waiter is granted a lock. A write that was answered
// before its leader was deposed protects the session for T - M, because the
// next leader gives the session its full T.
//
// # Assumptions
//
//   - The clocks of client and servers run alike: over a time of T they drift
//     apart by less than M.
//   - A leader's ping reaches the server within g. A ping that is later by less
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
// on a connection is a write, and so is every (n+1)-th after that. Heartbeats
// are sent at intervals of p = (g + r) / n, where r is a round trip, without
// waiting for the answer to the one before. Each heartbeat proves the n-th one
// before it. So just before a renewal arrives, the lease counts from an instant
// that is (n+1) * p + r ago. If an outage begins at that moment, the lease ends
// T - M - (n+1) * p - r later.
//
// n is 2 if the tick is not stated, and 1 if g is small. n grows with r. If all
// nodes only wait, n is 1 and p is at least T/4, if the term T - M is long
// enough for that.
//
// If a node is next in line, a heartbeat is a write when the latest write is
// T/4 old, or always if p is at least T/4. So there are at most four writes in
// T, and when p is T/4 and r, the latest write is recent enough for confirmed
// at any time. A session whose latest write is older when it becomes next in
// line writes at once. On a deposed leader it gets no answer, so it gives the
// connection up and tries another server.
type keepalive struct {
	lease  *driver.Lease
	duty   func() Duty
	wake   chan struct{}      // wakes run when the next heartbeat may be due at another time; capacity 1
	proofs singleflight.Group // concurrent calls of confirm share one write

	mu               sync.Mutex
	countsFromStrong bool // whether the end of the lease is computed from schedule.strong
	schedule         *schedule
	number           uint64        // number of the current connection
	looking          bool          // whether LookAhead is running
	writing          chan struct{} // closed when the latest write sent as a heartbeat has ended; nil if none is in flight
}

func newKeepalive(s *schedule, lease *driver.Lease, duty func() Duty) *keepalive {
	return &keepalive{schedule: s, lease: lease, duty: duty, wake: make(chan struct{}, 1)}
}

func (k *keepalive) outage() (kept, survived time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.schedule.outage()
}

func (k *keepalive) hostsAre(n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.hosts = n
}

// connected starts a new connection. Requests of earlier connections no longer
// prove anything, because the server that answered them may have lost its
// leader.
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

// answered records that a request was answered. If the answer proves that the
// session is alive, it renews the lease. Answers to requests of an earlier
// connection are ignored.
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

var errNoWrite = errors.New("no write has been answered on this connection")

// hold makes the lease count from schedule.strong, because the session now has
// a node that may hold a lock. k.duty must already return Holding. It fails if
// too little of the lease is left.
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

// confirmed reports whether waiters may now be granted a lock, and if so makes
// the lease count from the latest answered write. It returns false if that
// write is too old; the caller must then call confirm. It returns true if no
// node may hold a lock or the lease has ended.
func (k *keepalive) confirmed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.confirmedNow()
}

func (k *keepalive) confirmedNow() bool {
	if k.countsFromStrong || k.duty() != Holding || k.lease.Err() != nil {
		return true
	}
	fresh := k.schedule.written != never && k.lease.Now().Sub(k.schedule.written) <= k.schedule.timeout*3/8
	return fresh && k.holdAtLeast(k.schedule.timeout/5) == nil
}

// confirm makes the lease count from a recent answered write, so that waiters
// may be granted a lock. If the latest write is too old, confirm waits for one
// in flight or else calls write. Concurrent calls share one write.
func (k *keepalive) confirm(write func() error) error {
	if k.confirmed() {
		return nil
	}
	_, err, _ := k.proofs.Do("", func() (any, error) {
		for {
			id, heartbeat, needed := k.beginProof()
			if !needed {
				return nil, nil
			}
			if heartbeat == nil {
				defer k.heartbeatEnded(id)
				return nil, k.proveAndHold(write)
			}
			select {
			case <-heartbeat:
			case <-k.lease.Done():
			}
		}
	})
	return err
}

// beginProof announces that confirm is about to send a write, so that run does
// not send one as well. If needed is false, another write has been answered
// meanwhile, and none is needed. If heartbeat is not nil, a write is already in
// flight, and the caller should wait until that channel is closed, because a
// second write would not be answered sooner.
func (k *keepalive) beginProof() (id uint64, heartbeat <-chan struct{}, needed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.confirmedNow():
		return 0, nil, false
	case k.writing != nil:
		return 0, k.writing, true
	}
	return k.schedule.noteSent(toQuorum, k.lease.Now()), nil, true
}

// proveAndHold calls write and then hold. It makes up to three attempts while
// the lease lasts.
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

// run sends heartbeats until the lease ends. It calls send for each heartbeat
// and look when the session has to look ahead. Both must return at once, and
// call ended when the request was answered or has failed. If a connection goes
// silent, run calls giveUp to close it.
func (k *keepalive) run(send func(r reach, ended func()), look func(ended func(error)), giveUp func(connection uint64)) {
	timer := time.NewTimer(k.schedule.timeout)
	defer timer.Stop()
	for k.lease.Err() == nil {
		next := k.next()
		if next.giveUp {
			giveUp(next.connection)
		}
		if next.look {
			look(k.looked)
			continue
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
	look       bool  // look ahead
	reach      reach // how far the heartbeat must travel; used only if ended is set
	ended      func()
	wait       time.Duration // until the next step
}

func (k *keepalive) next() step {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.lease.Now()
	next := step{connection: k.number, wait: k.schedule.timeout} // an upper bound: wakeRun may end the wait earlier
	d := k.duty()
	if left, ok := k.schedule.giveUpIn(now, d); ok {
		if left <= 0 {
			k.schedule.detached()
			next.giveUp = true
			return next
		}
		next.wait = left
	}
	if due, ok := k.schedule.lookIn(now, d); ok && !k.looking {
		if due <= 0 {
			k.looking, next.look = true, true
			return next
		}
		next.wait = min(next.wait, due)
	}
	r, due, ok := k.schedule.due(now, d)
	switch {
	case ok && due > 0:
		next.wait = min(next.wait, due)
	case ok:
		next.reach, next.ended = r, k.beginHeartbeat(r, now)
	}
	return next
}

// beginHeartbeat records a heartbeat that the caller is about to send. The
// caller must call ended when the heartbeat was answered or has failed. The
// caller holds k.mu.
func (k *keepalive) beginHeartbeat(r reach, now driver.Instant) (ended func()) {
	id := k.schedule.noteSent(r, now)
	if r != toQuorum {
		return func() { k.heartbeatEnded(id) }
	}
	writing := make(chan struct{})
	k.writing = writing
	return func() { k.heartbeatEnded(id); k.writeEnded(writing) }
}

// dutyChanged makes run recompute when the next heartbeat is due. If a node
// that is next in line needs a write at once, dutyChanged sends it itself.
func (k *keepalive) dutyChanged(send func(r reach, ended func())) {
	if ended := k.dueWrite(); ended != nil {
		send(toQuorum, ended)
	}
	k.wakeRun()
}

// dueWrite begins a heartbeat if a node is next in line and therefore needs a
// write now. Otherwise it returns nil.
func (k *keepalive) dueWrite() (ended func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d, now := k.duty(), k.lease.Now()
	if r, due, ok := k.schedule.due(now, d); d == Next && r == toQuorum && ok && due <= 0 {
		return k.beginHeartbeat(r, now)
	}
	return nil
}

// writeEnded wakes the goroutines that wait for the write in flight.
func (k *keepalive) writeEnded(writing chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.writing == writing {
		k.writing = nil
	}
	close(writing)
}

func (k *keepalive) looked(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looking = false
	if err != nil {
		k.schedule.lastLook = k.lease.Now()
	}
	k.wakeRun()
}

func (k *keepalive) heartbeatEnded(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.noteEnded(id)
	k.wakeRun()
}
