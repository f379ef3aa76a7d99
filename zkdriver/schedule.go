package zkdriver

import (
	"time"

	"github.com/dlock-go/dlock/driver"
)

// schedule decides what the answers of a server prove about a session, and when
// the next heartbeat is due. It does no I/O and reads no clock. The comment of
// beats has the rule and the reasons.
type schedule struct {
	timeout time.Duration // T, as granted
	term    time.Duration // T - M
	gap     time.Duration // g
	hosts   int           // that the session may connect to

	// The lease may count from sure while the session owns nodes, and from the
	// later of the two while it owns none. Both outlive a connection.
	loose, sure driver.Instant

	trip time.Duration // estimate of a round trip

	// The rest is about the present connection.
	attached   bool
	marks      [64]mark // a ring
	newest     int
	proven     driver.Instant // sending time of the latest proven mark
	written    driver.Instant // sending time of the latest answered write
	lastProof  driver.Instant // when the latest write or sync was sent
	lastWrite  driver.Instant // when the latest write was sent
	unanswered []heartbeat    // oldest first
	heartbeats uint64         // ever sent, on all connections
}

// mark is a request that was answered.
type mark struct {
	sent, answered driver.Instant
	set            bool
	direct         bool // the leader has seen the session before the answer
}

// heartbeat is a write or a sync that the schedule asked for.
type heartbeat struct {
	id   uint64
	sent driver.Instant
}

// never is an instant that has not come.
var never driver.Instant

// duty is what the nodes of a session ask of its lease.
type duty int

const (
	idle    duty = iota // the session owns no node
	waiting             // all its nodes wait for nodes ahead of them
	holding             // one of its nodes may hold a lock
)

// newSchedule returns the schedule of a session with that timeout and margin. A
// tick of zero is one that the data source name does not state.
func newSchedule(timeout, margin, tick time.Duration, hosts int) *schedule {
	b := &schedule{timeout: timeout, term: timeout - margin, gap: timeout / 4, hosts: hosts}
	if tick > 0 {
		// Half a tick is what the leader needs; the rest is for its loop.
		b.gap = min(b.gap, tick*55/100)
	}
	return b
}

// patience returns how long a heartbeat may be without an answer, at least. The
// rest of the lease has to suffice for another connection.
func (b *schedule) patience(d duty) time.Duration {
	p, _ := b.pace(0, d)
	patience := max(b.term-max(b.gap, p)-p, 0) * 2 / 3
	if b.hosts > 1 { // another one may answer
		patience = min(patience, b.timeout/8)
	}
	return patience
}

// connected starts a connection whose connect request was sent at asked. A first
// connection makes the session, which is a write. On a later one nothing has
// been proven yet, so a heartbeat is due at once.
func (b *schedule) connected(asked, now driver.Instant, first bool) {
	b.marks = [len(b.marks)]mark{}
	b.newest = 0
	b.marks[0] = mark{sent: asked, answered: now, set: true, direct: true}
	b.proven, b.written, b.lastProof, b.lastWrite = never, never, never, never
	b.unanswered = nil
	b.attached = true
	if first {
		b.proven, b.written, b.lastProof, b.lastWrite = asked, asked, asked, asked
		b.loose, b.sure = asked, asked
	}
}

// detached ends the connection: no heartbeat is sent until the next one.
func (b *schedule) detached() {
	b.attached = false
	b.unanswered = nil
}

// answered notes an answered request of the present connection. Marks are at
// least g/20 apart, so that a busy session does not overrun the ring. A
// heartbeat is kept as a mark in any case.
func (b *schedule) answered(p part, sent, now driver.Instant, isHeartbeat bool) {
	if p != server {
		b.proof(p, sent, now)
	}
	if isHeartbeat || now.Sub(b.marks[b.newest].answered) >= b.gap/20 {
		b.newest = (b.newest + 1) % len(b.marks)
		b.marks[b.newest] = mark{sent: sent, answered: now, set: true}
	}
}

func (b *schedule) proof(p part, sent, now driver.Instant) {
	if m, ok := b.provenBy(sent); ok {
		b.proven = later(b.proven, m.sent)
		b.loose = later(b.loose, m.sent)
	}
	b.lastProof = later(b.lastProof, sent)
	if p == quorum {
		b.written = later(b.written, sent)
		b.lastWrite = later(b.lastWrite, sent)
	}
	if b.written != never && b.proven != never {
		b.sure = later(b.sure, earlier(b.written, b.proven))
	}
	trip := now.Sub(sent)
	b.trip = max(trip, b.trip-(b.trip-trip)/8)
}

// provenBy returns the latest mark that a proof sent at that instant proves.
func (b *schedule) provenBy(sent driver.Instant) (mark, bool) {
	for i := range b.marks {
		m := b.marks[(b.newest-i+len(b.marks))%len(b.marks)]
		if m.set && (m.direct || sent.Sub(m.answered) >= b.gap) {
			return m, true
		}
	}
	return mark{}, false
}

// from returns the instant that the lease counts from.
func (b *schedule) from(d duty) driver.Instant {
	if d == holding {
		return b.sure
	}
	return later(b.sure, b.loose)
}

// pace returns the time p between two heartbeats, and how many of them make up
// the gap and a round trip r: a heartbeat proves the n-th before it.
//
// The next renewal of the lease is answered when it is g + r + p + r old, at
// the latest. So p becomes smaller as r grows. A session that only waits has a
// longer p if the term allows it: no caller works under its locks yet.
func (b *schedule) pace(r time.Duration, d duty) (p time.Duration, n int) {
	most := b.term * 4 / 5
	n, least := 1, b.timeout*2/17
	switch rest := max(b.gap+r, b.timeout/4); {
	case d == waiting && 2*rest+r <= most:
		least = b.timeout / 4
	case b.gap+r > b.timeout*3/16:
		n = 2
	}
	p = max((b.gap+r)/time.Duration(n), least)
	for max(b.gap+r, p)+p+r > most {
		next := (b.gap + r) / time.Duration(n+1)
		if next < b.timeout/40 {
			break
		}
		p, n = next, n+1
	}
	return p, n
}

// due returns how long it is until the next heartbeat, and which request that
// has to be. ok is false if none may be sent before something else happens.
func (b *schedule) due(now driver.Instant, d duty) (what part, wait time.Duration, ok bool) {
	p, n := b.pace(max(b.trip, b.unansweredFor(now)), d)
	if !b.attached || len(b.unanswered) >= 2*n+2 {
		return 0, 0, false
	}
	what = leader
	if d == holding && (b.lastWrite == never || now.Sub(b.lastWrite) >= time.Duration(n)*p+p/2) {
		what = quorum
	}
	if b.lastProof == never {
		return what, 0, true
	}
	wait = p - now.Sub(b.lastProof)
	if d == holding && b.lastWrite != never {
		// Syncs that the session sends for other reasons do not put the write off.
		wait = min(wait, time.Duration(n+1)*p-now.Sub(b.lastWrite))
	}
	// A heartbeat that is sent just too early to prove the next mark proves
	// nothing new.
	if m, found := b.unproven(); found {
		if ripe := b.gap - now.Sub(m.answered); ripe > wait && ripe <= wait+p/2 {
			wait = ripe
		}
	}
	return what, wait, true
}

// unansweredFor returns for how long the oldest unanswered heartbeat has waited.
func (b *schedule) unansweredFor(now driver.Instant) time.Duration {
	if len(b.unanswered) == 0 {
		return 0
	}
	return now.Sub(b.unanswered[0].sent)
}

// unproven returns the oldest mark that the latest proof does not prove.
func (b *schedule) unproven() (oldest mark, found bool) {
	for i := range b.marks {
		m := b.marks[(b.newest-i+len(b.marks))%len(b.marks)]
		if !m.set || m.direct || b.lastProof.Sub(m.answered) >= b.gap {
			break
		}
		oldest, found = m, true
	}
	return oldest, found
}

// send notes that a heartbeat is sent now, and returns its id.
func (b *schedule) send(what part, now driver.Instant) (id uint64) {
	b.heartbeats++
	b.unanswered = append(b.unanswered, heartbeat{b.heartbeats, now})
	b.lastProof = now
	if what == quorum {
		b.lastWrite = now
	}
	return b.heartbeats
}

// ended notes that a heartbeat was answered, or never will be.
func (b *schedule) ended(id uint64) {
	for i, h := range b.unanswered {
		if h.id == id {
			b.unanswered = append(b.unanswered[:i:i], b.unanswered[i+1:]...)
			return
		}
	}
}

// hopeless returns how long it is until the connection is given up. ok is false
// if no heartbeat waits for its answer.
func (b *schedule) hopeless(now driver.Instant, d duty) (wait time.Duration, ok bool) {
	return max(b.patience(d), 3*b.trip) - b.unansweredFor(now), len(b.unanswered) > 0
}

// later returns the later of two instants, earlier the earlier one.
func later(a, b driver.Instant) driver.Instant {
	if a == never || b != never && b.Sub(a) > 0 {
		return b
	}
	return a
}

func earlier(a, b driver.Instant) driver.Instant {
	if b.Sub(a) < 0 {
		return b
	}
	return a
}
