package recipes

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// sharedEntry is an entry that the goroutines of a cohort share. Their holds
// borrow it. cohort.mu guards the fields.
//
// A turn is a time in which one goroutine holds the entry exclusively, or in
// which goroutines hold it shared without a gap.
type sharedEntry struct {
	cohort *cohort
	entry  *engine.Entry
	want   *want // what the node was created for

	holds  []*hold            // the holds that use the entry now
	turns  int                // that count towards Retention.Turns, with the present one
	others others             // as the last list of the queue showed
	idle   *time.Timer        // removes the entry when it has had no holds for Retention.Idle
	cancel context.CancelFunc // stops lookForOthers
}

// others says whether a contender outside the cohort waits for the lock.
type others int

const (
	unknown others = iota // the queue has not been listed yet, or cannot be watched any more
	none
	waiting
)

// ownEntry grants an unblocked entry to the cohort.
func (s *sharedEntry) ownEntry(w *want, e *engine.Entry) error {
	s.entry, s.want = e, w
	return e.Grant(s.tellHolds)
}

// inUse reports whether a goroutine holds the entry now, and whether one holds
// it exclusively.
func (s *sharedEntry) inUse() (held, exclusively bool) {
	for _, h := range s.holds {
		some, exclusive := h.heldNow()
		held, exclusively = held || some, exclusively || exclusive
	}
	return held, exclusively
}

// spent reports whether Retention.Turns is used up. Until the queue was listed,
// it assumes that no other contender waits, but for no longer than
// Retention.Idle.
func (s *sharedEntry) spent() bool {
	retention := s.cohort.queue.options.retention
	if s.others == none || s.others == unknown && time.Since(s.entry.Since()) < retention.Idle {
		return false
	}
	return s.turns >= retention.Turns
}

// admit returns a Lock of a new hold, or nil if the caller has to wait. A
// reader that joins other readers begins no new turn.
func (s *sharedEntry) admit(w *want) *Lock {
	held, exclusively := s.inUse()
	if s.entry.Loss() != nil || exclusively {
		return nil
	}
	if w.exclusive && (held || !s.want.exclusive || s.entry.IsRenamed()) {
		return nil
	}
	if !held {
		if s.spent() {
			return nil
		}
		if s.others != none {
			s.turns++
		}
	}
	return s.lend(w)
}

func (s *sharedEntry) lend(w *want) *Lock {
	h, l := newHold(s.cohort.queue, w, s.entry, s)
	s.holds = append(s.holds, h)
	if s.idle != nil {
		s.idle.Stop()
	}
	return l
}

// keepIdle removes the entry after Retention.Idle, unless a goroutine holds it
// again by then.
func (s *sharedEntry) keepIdle() {
	d := s.cohort.queue.options.retention.Idle
	if s.idle == nil {
		s.idle = time.AfterFunc(d, s.removeIdle)
	} else {
		s.idle.Reset(d)
	}
}

// retire stops what runs only while the cohort has the entry.
func (s *sharedEntry) retire() {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.cancel != nil {
		s.cancel()
	}
}

// watchOthers is called with cohort.mu held.
func (s *sharedEntry) watchOthers() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.cohort.queue.client.spawn(func() {
		defer cancel()
		s.lookForOthers(ctx)
	})
}

// admitReaders is called when a hold has become shared.
func (s *sharedEntry) admitReaders() {
	c := s.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == s {
		c.admitWaiters()
	}
}

// takeBack takes back what a hold that has ended has borrowed. The entry then
// goes to waiters, is kept for a while, or is removed: see passOn.
func (s *sharedEntry) takeBack(h *hold) error {
	c := s.cohort
	c.mu.Lock()
	s.holds = slices.DeleteFunc(s.holds, func(other *hold) bool { return other == h })
	if s.entry.Loss() != nil {
		unused := len(s.holds) == 0
		c.mu.Unlock()
		if unused {
			s.entry.SeeLoss()
		}
		return nil
	}
	remove := c.passOn(s)
	c.mu.Unlock()
	if !remove {
		return nil
	}
	return s.removeNode()
}

// removeNode removes an entry that the cohort has dropped. Its waiters then
// contend for another one.
func (s *sharedEntry) removeNode() error {
	defer s.cohort.contendAgain() // runs also if a hook panics
	return s.entry.Remove(unlockTimeout)
}

// removeIdle removes the entry if it has no holds.
func (s *sharedEntry) removeIdle() {
	c := s.cohort
	if c.queue.client.beginCall() != nil {
		return // the client is being closed; the store removes the node with the session
	}
	defer c.queue.client.endCall()
	c.mu.Lock()
	unused := c.shared == s && len(s.holds) == 0
	if unused {
		c.drop()
	}
	c.mu.Unlock()
	if unused {
		_ = s.removeNode()
	}
}

// tellShared tells the store that a detached entry is shared. The reaper
// repeats the request if it fails.
func (s *sharedEntry) tellShared() {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	_ = s.entry.Rename(ctx)
}

// tellHolds tells the holds that the entry was lost. The waiters contend for
// another one.
func (s *sharedEntry) tellHolds(loss engine.Loss) (report func()) {
	c := s.cohort
	c.mu.Lock()
	holds := slices.Clone(s.holds) // no hold is added to a lost entry
	c.mu.Unlock()
	var reports []func()
	for _, h := range holds {
		reports = append(reports, h.tellLoss(loss))
	}
	c.mu.Lock()
	unused := len(s.holds) == 0
	if c.shared == s {
		c.drop()
		c.contendForAll()
	}
	c.mu.Unlock()
	if unused {
		s.entry.SeeLoss()
	}
	return func() { callAll(reports) }
}

// callAll calls all functions, also if one of them panics.
func callAll(fs []func()) {
	if len(fs) > 0 {
		defer callAll(fs[1:])
		fs[0]()
	}
}

// lookForOthers watches the queue until another contender waits. It may notice
// one so late that it has given up again. The cohort then gives its entry up for
// nothing, which costs another node and does no other harm.
func (s *sharedEntry) lookForOthers(ctx context.Context) {
	waits := false
	s.entry.Observe(ctx, func(nodes []driver.Node, err error) (more bool) {
		if err != nil {
			s.forgetOthers()
			return true
		}
		waits = s.noteOthers(nodes) == waiting
		return !waits
	})
	if waits {
		s.removeIdle()
	}
}

// forgetOthers makes turns count again, as before the first list. Otherwise a
// client that cannot watch the queue would keep the lock for as long as its
// goroutines take it.
func (s *sharedEntry) forgetOthers() {
	s.cohort.mu.Lock()
	defer s.cohort.mu.Unlock()
	if s.others == none {
		s.others = unknown
	}
}

// noteOthers notes whether a list of the queue shows that a contender outside
// the cohort waits. If none does, the count of turns begins anew. If one does,
// the cohort gives up an entry that only readers hold.
func (s *sharedEntry) noteOthers(nodes []driver.Node) others {
	c := s.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	s.others = s.othersIn(nodes)
	if c.shared != s {
		return s.others
	}
	if s.others == none {
		s.turns = 1
	}
	c.admitWaiters()
	return s.others
}

// othersIn reports whether a contender waits behind the entry. If the list does
// not show the entry, it returns what was known before.
func (s *sharedEntry) othersIn(nodes []driver.Node) others {
	i := engine.Index(nodes, s.entry.Place().Node)
	// The node was renamed or removed, and its own watch finds out which.
	if i < 0 {
		return s.others
	}
	for _, n := range nodes[i+1:] {
		if len(wantOf(n).rule(nodes[i:i+1])) > 0 {
			return waiting
		}
	}
	return none
}
