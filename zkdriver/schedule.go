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
	weak, strong driver.Instant

	roundTrip time.Duration // estimate of a round trip

	// The rest is about the present connection.
	attached   bool
	touches    [64]touch // a ring
	newest     int
	proven     driver.Instant // sending time of the latest proven mark
	written    driver.Instant // sending time of the latest answered write
	lastProof  driver.Instant // when the latest write or sync was sent
	lastWrite  driver.Instant // when the latest write was sent
	unanswered []heartbeat    // oldest first
	heartbeats uint64         // ever sent, on all connections
}

// touch is a request that was answered.
type touch struct {
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

// Duty is what the nodes of a session ask of its lease.
type Duty int

const (
	Idle    Duty = iota // the session owns no node
	Waiting             // all its nodes wait for nodes ahead of them
	Holding             // one of its nodes may hold a lock
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

// answerTimeout returns how long a heartbeat may be without an answer, at least. The
// rest of the lease has to suffice for another connection.
func (s *schedule) answerTimeout(d Duty) time.Duration {
	p, _ := s.interval(0, d)
	patience := max(s.term-max(s.gap, p)-p, 0) * 2 / 3
	if s.hosts > 1 { // another one may answer
		patience = min(patience, s.timeout/8)
	}
	return patience
}

// connected starts a connection whose connect request was sent at asked. A first
// connection makes the session, which is a write. On a later one nothing has
// been proven yet, so a heartbeat is due at once.
func (s *schedule) connected(asked, now driver.Instant, first bool) {
	s.touches = [len(s.touches)]touch{}
	s.newest = 0
	s.touches[0] = touch{sent: asked, answered: now, set: true, direct: true}
	s.proven, s.written, s.lastProof, s.lastWrite = never, never, never, never
	s.unanswered = nil
	s.attached = true
	if first {
		s.proven, s.written, s.lastProof, s.lastWrite = asked, asked, asked, asked
		s.weak, s.strong = asked, asked
	}
}

// detached ends the connection: no heartbeat is sent until the next one.
func (s *schedule) detached() {
	s.attached = false
	s.unanswered = nil
}

// answered notes an answered request of the present connection. Marks are at
// least g/20 apart, so that a busy session does not overrun the ring. A
// heartbeat is kept as a mark in any case.
func (s *schedule) answered(p reach, sent, now driver.Instant, isHeartbeat bool) {
	if p != toServer {
		s.proof(p, sent, now)
	}
	if isHeartbeat || now.Sub(s.touches[s.newest].answered) >= s.gap/20 {
		s.newest = (s.newest + 1) % len(s.touches)
		s.touches[s.newest] = touch{sent: sent, answered: now, set: true}
	}
}

func (s *schedule) proof(p reach, sent, now driver.Instant) {
	if m, ok := s.provenBy(sent); ok {
		s.proven = later(s.proven, m.sent)
		s.weak = later(s.weak, m.sent)
	}
	s.lastProof = later(s.lastProof, sent)
	if p == toQuorum {
		s.written = later(s.written, sent)
		s.lastWrite = later(s.lastWrite, sent)
	}
	if s.written != never && s.proven != never {
		s.strong = later(s.strong, earlier(s.written, s.proven))
	}
	trip := now.Sub(sent)
	s.roundTrip = max(trip, s.roundTrip-(s.roundTrip-trip)/8)
}

// provenBy returns the latest mark that a proof sent at that instant proves.
func (s *schedule) provenBy(sent driver.Instant) (touch, bool) {
	for i := range s.touches {
		m := s.touches[(s.newest-i+len(s.touches))%len(s.touches)]
		if m.set && (m.direct || sent.Sub(m.answered) >= s.gap) {
			return m, true
		}
	}
	return touch{}, false
}

// leaseStart returns the instant that the lease counts from.
func (s *schedule) leaseStart(d Duty) driver.Instant {
	if d == Holding {
		return s.strong
	}
	return later(s.strong, s.weak)
}

// interval returns the time p between two heartbeats, and how many of them make up
// the gap and a round trip r: a heartbeat proves the n-th before it.
//
// The next renewal of the lease is answered when it is g + r + p + r old, at
// the latest. So p becomes smaller as r grows. A session that only waits has a
// longer p if the term allows it: no caller works under its locks yet.
func (s *schedule) interval(r time.Duration, d Duty) (p time.Duration, n int) {
	most := s.term * 4 / 5
	n, least := 1, s.timeout*2/17
	switch rest := max(s.gap+r, s.timeout/4); {
	case d == Waiting && 2*rest+r <= most:
		least = s.timeout / 4
	case s.gap+r > s.timeout*3/16:
		n = 2
	}
	p = max((s.gap+r)/time.Duration(n), least)
	for max(s.gap+r, p)+p+r > most {
		next := (s.gap + r) / time.Duration(n+1)
		if next < s.timeout/40 {
			break
		}
		p, n = next, n+1
	}
	return p, n
}

// due returns how long it is until the next heartbeat, and which request that
// has to be. ok is false if none may be sent before something else happens.
func (s *schedule) due(now driver.Instant, d Duty) (what reach, wait time.Duration, ok bool) {
	p, n := s.interval(max(s.roundTrip, s.unansweredFor(now)), d)
	if !s.attached || len(s.unanswered) >= 2*n+2 {
		return 0, 0, false
	}
	what = toLeader
	if d == Holding && (s.lastWrite == never || now.Sub(s.lastWrite) >= time.Duration(n)*p+p/2) {
		what = toQuorum
	}
	if s.lastProof == never {
		return what, 0, true
	}
	wait = p - now.Sub(s.lastProof)
	if d == Holding && s.lastWrite != never {
		// Syncs that the session sends for other reasons do not put the write off.
		wait = min(wait, time.Duration(n+1)*p-now.Sub(s.lastWrite))
	}
	// A heartbeat that is sent just too early to prove the next mark proves
	// nothing new.
	if m, found := s.oldestUnproven(); found {
		if ripe := s.gap - now.Sub(m.answered); ripe > wait && ripe <= wait+p/2 {
			wait = ripe
		}
	}
	return what, wait, true
}

// unansweredFor returns for how long the oldest unanswered heartbeat has waited.
func (s *schedule) unansweredFor(now driver.Instant) time.Duration {
	if len(s.unanswered) == 0 {
		return 0
	}
	return now.Sub(s.unanswered[0].sent)
}

// oldestUnproven returns the oldest mark that the latest proof does not prove.
func (s *schedule) oldestUnproven() (oldest touch, found bool) {
	for i := range s.touches {
		m := s.touches[(s.newest-i+len(s.touches))%len(s.touches)]
		if !m.set || m.direct || s.lastProof.Sub(m.answered) >= s.gap {
			break
		}
		oldest, found = m, true
	}
	return oldest, found
}

// noteSent notes that a heartbeat is sent now, and returns its id.
func (s *schedule) noteSent(what reach, now driver.Instant) (id uint64) {
	s.heartbeats++
	s.unanswered = append(s.unanswered, heartbeat{s.heartbeats, now})
	s.lastProof = now
	if what == toQuorum {
		s.lastWrite = now
	}
	return s.heartbeats
}

// noteEnded notes that a heartbeat was answered, or never will be.
func (s *schedule) noteEnded(id uint64) {
	for i, h := range s.unanswered {
		if h.id == id {
			s.unanswered = append(s.unanswered[:i:i], s.unanswered[i+1:]...)
			return
		}
	}
}

// giveUpIn returns how long it is until the connection is given up. ok is false
// if no heartbeat waits for its answer.
func (s *schedule) giveUpIn(now driver.Instant, d Duty) (wait time.Duration, ok bool) {
	return max(s.answerTimeout(d), 3*s.roundTrip) - s.unansweredFor(now), len(s.unanswered) > 0
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
