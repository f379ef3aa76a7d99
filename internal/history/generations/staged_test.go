package generations

import (
	"testing"
	"time"
)

// These attacks need an order of events that no random history has produced.
func TestStagedAttacks(t *testing.T) {
	for name, a := range map[string]struct {
		twoHolders func(*rules) bool
		mutate     func(*rules)
	}{
		"the grace counts from an attempt that replicas receive later": {receivedLate, func(r *rules) {
			r.received = func(p reply, _ time.Duration) receipt { return receipt{p.now, p.generation} }
		}},
		"a receipt of another generation counts": {receivedEarlier, func(r *rules) {
			r.accepts = func(from receipt, _, _ int) bool { return from.generation > 0 }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			broken := asBuilt()
			a.mutate(broken)
			if a.twoHolders(asBuilt()) {
				t.Error("there are two holders, with all rules")
			}
			if !a.twoHolders(broken) {
				t.Error("there is one holder, without the rule")
			}
		})
	}
}

// stage is a run whose events the test determines.
type stage struct {
	*run
	old, promoted *server
	lease         time.Duration // of the holder, on the old master
}

// newStage lets a client hold the lock. The replica to be promoted lacks its
// node.
func newStage(rules *rules) *stage {
	s := &stage{run: &run{rules: rules, now: start}}
	for range 3 {
		x := &server{run: s.run, data: data{sessions: map[int]time.Duration{}}}
		x.promote()
		s.servers = append(s.servers, x)
	}
	s.old, s.promoted = s.servers[0], s.servers[1]
	s.old.begin(s.old.replID)
	s.old.open(1, 0, receipt{})
	s.old.create(nil, 1, 0)
	return s
}

func (s *stage) at(ms int) { s.now = start + time.Duration(ms)*time.Millisecond }

func (s *stage) beat() {
	s.old.beat(1, 0)
	s.lease = s.now + term
}

// overlap reports whether the client that got p is granted within the holder's
// lease.
func (s *stage) overlap(p reply) bool {
	for p.status == waits {
		s.now += p.wait
		p = s.promoted.open(2, 0, s.rules.received(p, 0))
	}
	return s.promoted.create(nil, 2, 0).first && s.now < s.lease
}

// In receivedLate, the replica still confirms a heartbeat after two clients
// have sent their attempts.
func receivedLate(rules *rules) bool {
	s := newStage(rules)
	s.at(2000)
	a, b := s.promoted.open(2, 0, receipt{}), s.promoted.open(3, 0, receipt{})
	s.at(3100)
	s.beat()
	s.at(3200)
	fromA, fromB := rules.received(a, 1200*time.Millisecond), rules.received(b, 1200*time.Millisecond)
	s.at(5200)
	s.promoted.open(2, 0, fromA)
	s.promoted.step = time.Minute
	s.at(5220)
	return s.overlap(s.promoted.open(3, 0, fromB))
}

// In receivedEarlier, clients show a receipt from the old master, which must
// not count.
func receivedEarlier(rules *rules) bool {
	s := newStage(rules)
	earlier := receipt{start, s.old.replID}
	s.at(400)
	s.promoted.open(3, 0, earlier)
	s.at(2800)
	s.promoted.open(4, 0, earlier)
	s.at(5200)
	s.promoted.open(5, 0, earlier)
	s.beat()
	s.at(5300)
	return s.overlap(s.promoted.open(2, 0, receipt{}))
}
