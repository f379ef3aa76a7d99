package zkdriver

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// beats decides what an answered request proves about the lease.
//
// A server takes down that it has heard of a session and tells the leader, which alone decides
// when a session has timed out, only when the leader pings it: every half tick. So an answer
// proves nothing by itself. A server that has lost its leader goes on answering pings and reads
// from its own memory for many seconds, while the leader hears nothing and gives the session's
// locks away.
//
// A write or a Sync is answered only after a leader has handled it. What a server sends its
// leader arrives in order. So when the answer to a write or Sync that was sent at s is there,
// the leader has received everything that the server had said before, including the report of
// every request that had reached the server half a tick before s. A request has reached the
// server when it is answered. Therefore:
//
//	An answered write or Sync, sent at s, renews the lease to the sending time of the latest
//	request of the same connection that was answered at or before s - T/4.
//
// T is the session's timeout. The least that a server grants is two ticks, so that half a tick
// is at most T/4. (Where an operator has set minSessionTimeout lower, session_timeout has to be
// two ticks all the same.) The rule asks that the leader's pings are not late by more than the
// lease's margin.
//
// A connect request counts with its own sending time, as soon as a later write or Sync of its
// connection is answered: a server asks its leader about the session before it answers, and a
// leader looks itself.
//
// A leader may have been deposed without knowing it yet. It goes on answering a Sync, for as
// long as its syncLimit, while the new one counts by a clock of its own; but it cannot answer a
// write, which takes a quorum. So as long as the session owns nodes, only a write counts, and
// the heartbeat is one that changes nothing. A session without nodes has nothing to lose, and
// when it gets a node, the answer to that write proves what a Sync had proved before.
type beats struct {
	gap    time.Duration // T/4
	lease  *driver.Lease
	strict func() bool // whether only a write counts

	mu         sync.Mutex
	generation uint64
	marks      [8]mark // a ring, newest at last
	last       int
	proof      driver.Instant // when the latest proof was sent
	overdue    bool           // the next heartbeat is not to wait
}

// mark is a request that was answered.
type mark struct {
	sent, answered driver.Instant
	set            bool
	direct         bool // the leader has seen to it before the answer
}

// spacing is the least time between two marks: they have to cover the gap and a heartbeat more.
func (b *beats) spacing() time.Duration { return b.gap / 4 }

// interval is the time between two heartbeats: half the gap, so that one heartbeat counts the
// last but one, and two may be missed.
func (b *beats) interval() time.Duration { return b.gap / 2 }

func newBeats(timeout time.Duration, lease *driver.Lease, strict func() bool) *beats {
	return &beats{gap: timeout / 4, lease: lease, strict: strict}
}

// connected starts a new connection: what was said on an earlier one, to another server
// perhaps, may never have reached the leader. The next heartbeat is due at once if urgent.
func (b *beats) connected(asked, now driver.Instant, urgent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks = [len(b.marks)]mark{}
	b.marks[0] = mark{asked, now, true, true}
	b.last, b.proof, b.overdue = 0, now, urgent
	b.generation++
}

// answered takes down an answered request of the present connection, and renews the lease if
// the answer is a proof.
func (b *beats) answered(generation uint64, p part, sent, now driver.Instant) {
	proof := p == quorum || p == leader && !b.strict()
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation != b.generation {
		return
	}
	if proof {
		if m, ok := b.counted(sent); ok {
			b.lease.Renew(m.sent)
		}
		b.proof, b.overdue = sent, false
	}
	if now.Sub(b.marks[b.last].answered) >= b.spacing() {
		b.last = (b.last + 1) % len(b.marks)
		b.marks[b.last] = mark{sent: sent, answered: now, set: true}
	}
}

// counted returns the latest mark that a proof sent at that instant proves. It needs b.mu.
func (b *beats) counted(sent driver.Instant) (mark, bool) {
	for i := range b.marks {
		m := b.marks[(b.last-i+len(b.marks))%len(b.marks)]
		if m.set && (m.direct || sent.Sub(m.answered) >= b.gap) {
			return m, true
		}
	}
	return mark{}, false
}

// present returns the number of the connection.
func (b *beats) present() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.generation
}

// due returns how long it is until the next heartbeat.
func (b *beats) due(now driver.Instant) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.overdue {
		return 0
	}
	return b.interval() - now.Sub(b.proof)
}

// keepAlive sends a heartbeat whenever there was no proof for a while, until the session ends,
// whether or not anybody uses it.
func (s *session) keepAlive() {
	timer := time.NewTimer(s.beats.interval())
	defer timer.Stop()
	for {
		select {
		case <-s.lease.Done():
			return
		case <-timer.C:
		case <-s.reattached:
		}
		if s.beats.due(s.lease.Now()) <= 0 {
			s.heartbeat()
		}
		timer.Reset(max(s.beats.due(s.lease.Now()), s.beats.interval()/8))
	}
}

// heartbeat waits for the answer to a write or a Sync. A connection that does not bring it in
// time is closed, so that another server can be found while the lease runs.
func (s *session) heartbeat() {
	answer := make(chan struct{})
	s.work(func() {
		defer close(answer)
		if s.strict() {
			s.prove()
		} else {
			s.sync("/")
		}
	})
	connection := s.beats.present()
	patience := time.NewTicker(s.patience())
	defer patience.Stop()
	for {
		select {
		case <-answer:
			return
		case <-s.lease.Done():
			return
		case <-patience.C:
			if now := s.beats.present(); now != connection {
				connection = now // a reconnect: the request has only just been sent
			} else {
				s.link.cut(connection)
			}
		}
	}
}

// patience is how long a server may take to answer a heartbeat. With one host only, another
// connection is little better than the one there is.
func (s *session) patience() time.Duration {
	if len(s.settings.hosts) == 1 {
		return s.beats.gap
	}
	return s.beats.gap * 2 / 3
}

// strict tells whether only a write counts for the lease.
func (s *session) strict() bool { return !s.settings.syncOnly && s.owned.any() }
