package zkconn

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// schedule decides how answers extend the lease and when heartbeats are due.
// The comment on keepalive defines the terms.
type schedule struct {
	timeout   time.Duration // T: the granted session timeout
	term      time.Duration // T - M: how long a lease lasts
	gap       time.Duration // g: least time from answer to proof
	addresses int           // number of addresses of all hosts

	// The lease counts from strong or, without nodes, from the later of the two.
	weak, strong driver.Instant

	roundTrip time.Duration // estimated time from a request to its answer

	// All fields below except heartbeats describe the current connection.
	attached   bool
	touches    [64]touch // a ring buffer that ends at newest
	newest     int
	proven     driver.Instant // when the latest proven touch was sent
	written    driver.Instant // when the latest answered write was sent
	lastProof  driver.Instant // when the latest write or Sync was sent
	lastWrite  driver.Instant // when the latest write was sent
	unanswered []heartbeat    // oldest first
	heartbeats uint64         // number of heartbeats ever sent, on all connections
}

type touch struct {
	sent, answered driver.Instant
	set            bool
	direct         bool // whether the answer came after the leader's renewal
}

// heartbeat is a write or a Sync sent to renew the lease.
type heartbeat struct {
	id   uint64
	sent driver.Instant
}

// reach says how far a request travels before it is answered.
type reach int

const (
	toServer reach = iota // a read: the server answers alone
	toLeader              // a Sync: the server asks its leader
	toQuorum              // a write: a quorum has stored it
)

// never is the value of an instant that has not been set yet.
var never driver.Instant

// newSchedule returns a schedule for the session. A tick of zero means unknown.
func newSchedule(timeout, margin, tick time.Duration, addresses int) *schedule {
	s := &schedule{timeout: timeout, term: timeout - margin, gap: timeout / 4, addresses: addresses}
	if tick > 0 {
		// The leader pings its followers every half tick. The other 0.05 ticks
		// allow for delays.
		s.gap = min(s.gap, tick*55/100)
	}
	return s
}

// answerTimeout returns how long a heartbeat may be unanswered before the
// session must reconnect.
func (s *schedule) answerTimeout() time.Duration {
	p, _ := s.interval(0)
	timeout := max(s.term-max(s.gap, p)-p, 0) * 2 / 3
	if s.addresses > 1 { // another server may answer
		timeout = min(timeout, s.timeout/8)
	}
	return timeout
}

// connected starts a connection. The first one counts as a write.
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

// outage implements [Conn.Outage]. Reconnecting takes three round trips.
func (s *schedule) outage() (kept, survived time.Duration) {
	p, n := s.interval(s.roundTrip)
	kept = s.term - time.Duration(n+1)*p - s.roundTrip
	return kept, kept - s.timeout/40 - 3*s.roundTrip
}

func (s *schedule) detached() {
	s.attached = false
	s.unanswered = nil
}

// answered skips some requests, because a busy session would overwrite the
// touches too soon.
func (s *schedule) answered(r reach, sent, now driver.Instant, isHeartbeat bool) {
	if r != toServer {
		s.proof(r, sent, now)
	}
	if isHeartbeat || now.Sub(s.touches[s.newest].answered) >= s.gap/20 {
		s.newest = (s.newest + 1) % len(s.touches)
		s.touches[s.newest] = touch{sent: sent, answered: now, set: true}
	}
}

func (s *schedule) proof(r reach, sent, now driver.Instant) {
	if t, ok := s.provenBy(sent); ok {
		s.proven = later(s.proven, t.sent)
		s.weak = later(s.weak, t.sent)
	}
	s.lastProof = later(s.lastProof, sent)
	if r == toQuorum {
		s.written = later(s.written, sent)
		s.lastWrite = later(s.lastWrite, sent)
	}
	if s.written != never && s.proven != never {
		s.strong = later(s.strong, earlier(s.written, s.proven))
	}
	trip := now.Sub(sent)
	s.roundTrip = max(trip, s.roundTrip-(s.roundTrip-trip)/8)
}

// provenBy returns the latest touch proven by a proof sent at that instant.
func (s *schedule) provenBy(sent driver.Instant) (touch, bool) {
	for i := range s.touches {
		t := s.touches[(s.newest-i+len(s.touches))%len(s.touches)]
		if t.set && (t.direct || sent.Sub(t.answered) >= s.gap) {
			return t, true
		}
	}
	return touch{}, false
}

func (s *schedule) leaseStart(hasNodes bool) driver.Instant {
	if hasNodes {
		return s.strong
	}
	return later(s.strong, s.weak)
}

// interval returns the time p between heartbeats and the number n such that
// each heartbeat proves the n-th one before it. To do so, n intervals must
// cover the gap plus a round trip r.
//
// Just before a renewal, the lease counts from gap + 2r + p ago. As r grows, p
// shrinks, to keep that sum below 4/5 of the term.
func (s *schedule) interval(r time.Duration) (p time.Duration, n int) {
	most := s.term * 4 / 5
	n = 1
	if s.gap+r > s.timeout*3/16 {
		n = 2
	}
	p = max((s.gap+r)/time.Duration(n), s.timeout*2/17)
	for max(s.gap+r, p)+p+r > most {
		next := (s.gap + r) / time.Duration(n+1)
		if next < s.timeout/40 {
			break
		}
		p, n = next, n+1
	}
	return p, n
}

// due returns when to send the next heartbeat, and how far it must travel. If
// ok is false, none is due until something happens.
func (s *schedule) due(now driver.Instant, hasNodes bool) (r reach, wait time.Duration, ok bool) {
	p, n := s.interval(max(s.roundTrip, s.unansweredFor(now)))
	if !s.attached || len(s.unanswered) >= 2*n+2 {
		return 0, 0, false
	}
	r = toLeader
	if hasNodes && (s.lastWrite == never || now.Sub(s.lastWrite) >= time.Duration(n)*p+p/2) {
		r = toQuorum
	}
	if s.lastProof == never {
		return r, 0, true
	}
	wait = p - now.Sub(s.lastProof)
	if hasNodes && s.lastWrite != never {
		// A Sync sent for another reason must not postpone the write.
		wait = min(wait, time.Duration(n+1)*p-now.Sub(s.lastWrite))
	}
	// Wait a little longer if the heartbeat then proves one more touch.
	if t, found := s.oldestUnproven(); found {
		if ripe := s.gap - now.Sub(t.answered); ripe > wait && ripe <= wait+p/2 {
			wait = ripe
		}
	}
	return r, wait, true
}

// unansweredFor returns the age of the oldest unanswered heartbeat, or 0.
func (s *schedule) unansweredFor(now driver.Instant) time.Duration {
	if len(s.unanswered) == 0 {
		return 0
	}
	return now.Sub(s.unanswered[0].sent)
}

// oldestUnproven returns the oldest touch that the latest proof does not prove.
func (s *schedule) oldestUnproven() (oldest touch, found bool) {
	for i := range s.touches {
		t := s.touches[(s.newest-i+len(s.touches))%len(s.touches)]
		if !t.set || t.direct || s.lastProof.Sub(t.answered) >= s.gap {
			break
		}
		oldest, found = t, true
	}
	return oldest, found
}

func (s *schedule) noteSent(r reach, now driver.Instant) (id uint64) {
	s.heartbeats++
	s.unanswered = append(s.unanswered, heartbeat{s.heartbeats, now})
	s.lastProof = now
	if r == toQuorum {
		s.lastWrite = now
	}
	return s.heartbeats
}

func (s *schedule) noteEnded(id uint64) {
	s.unanswered = slices.DeleteFunc(s.unanswered, func(h heartbeat) bool { return h.id == id })
}

// giveUpIn returns how long the oldest unanswered heartbeat may still wait, if
// there is one.
func (s *schedule) giveUpIn(now driver.Instant) (wait time.Duration, ok bool) {
	return max(s.answerTimeout(), 3*s.roundTrip) - s.unansweredFor(now), len(s.unanswered) > 0
}

// later returns the later of two instants. An unset one counts as the earlier.
func later(a, b driver.Instant) driver.Instant {
	if a == never || b != never && b.Sub(a) > 0 {
		return b
	}
	return a
}

// earlier returns the earlier of two instants, both of which must be set.
func earlier(a, b driver.Instant) driver.Instant {
	if b.Sub(a) < 0 {
		return b
	}
	return a
}
