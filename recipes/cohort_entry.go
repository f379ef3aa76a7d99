package recipes

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// sharedEntry is a queue entry that the goroutines of a cohort use in turns.
// Its fields are guarded by cohort.mu.
//
// A turn lasts while one goroutine holds the lock exclusively, or while readers
// hold it without a gap.
type sharedEntry struct {
	cohort *cohort
	entry  *engine.Entry
	want   *want // what the node was created for; readers may use a writer's node

	holds  []*hold            // holds that currently use the entry
	turns  int                // turns taken while others wait, including the current one
	others others             // what the latest list of the queue has shown
	idle   *time.Timer        // removes the entry once idle for Retention.Idle
	cancel context.CancelFunc // stops lookForOthers
}

// others says whether contenders outside the cohort wait for the lock.
type others int

const (
	unknown others = iota // not listed yet, or the watch has failed
	none
	waiting
)

func (s *sharedEntry) ownEntry(w *want, e *engine.Entry) error {
	s.entry, s.want = e, w
	return e.Grant(s.tellHolds)
}

func (s *sharedEntry) inUse() (held, exclusively bool) {
	for _, h := range s.holds {
		some, exclusive := h.heldNow()
		held, exclusively = held || some, exclusively || exclusive
	}
	return held, exclusively
}

// spent reports whether the cohort has used up its turns and must pass the lock
// to another client. While the client does not know whether another one waits,
// the cohort may keep the lock for up to Retention.Idle.
func (s *sharedEntry) spent() bool {
	retention := s.cohort.queue.options.retention
	if s.others == none || s.others == unknown && time.Since(s.entry.Since()) < retention.Idle {
		return false
	}
	return s.turns >= retention.Turns
}

// admit grants the lock through this entry, or returns nil if the caller must
// wait. A reader joining other readers does not count as a new turn.
func (s *sharedEntry) admit(w *want) *Lock {
	held, exclusively := s.inUse()
	if s.entry.Loss() != nil || exclusively {
		return nil
	}
	if w.exclusive && (held || !s.want.exclusive || !s.entry.Reusable()) {
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

// keepIdle schedules the removal of the unused entry after Retention.Idle.
func (s *sharedEntry) keepIdle() {
	d := s.cohort.queue.options.retention.Idle
	if s.idle == nil {
		s.idle = time.AfterFunc(d, s.removeIdle)
	} else {
		s.idle.Reset(d)
	}
}

func (s *sharedEntry) retire() {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.cancel != nil {
		s.cancel()
	}
}

// watchOthers starts watching the queue for other clients. It is called with
// cohort.mu held.
func (s *sharedEntry) watchOthers() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.cohort.queue.client.spawn(func() {
		defer cancel()
		s.lookForOthers(ctx)
	})
}

// admitReaders lets waiting readers in after a downgrade.
func (s *sharedEntry) admitReaders() {
	c := s.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == s {
		c.admitWaiters()
	}
}

// takeBack returns the entry to its cohort when a hold ends. The entry is then
// reused, kept idle or removed.
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

func (s *sharedEntry) removeNode() error {
	defer s.cohort.contendAgain()
	return s.entry.Remove(unlockTimeout)
}

// removeIdle removes the entry when its idle time is over, unless it is in use
// again.
func (s *sharedEntry) removeIdle() {
	c := s.cohort
	if c.queue.client.beginCall() != nil {
		return // the session is ending, which removes the node
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

// tellShared renames the node so that readers of other clients can get the
// lock. On failure the reaper retries.
func (s *sharedEntry) tellShared() {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	_ = s.entry.Rename(ctx)
}

// tellHolds reports the loss of the entry to its holds, and lets the waiters
// contend for a new one.
func (s *sharedEntry) tellHolds(loss engine.Loss) (report func()) {
	c := s.cohort
	c.mu.Lock()
	holds := slices.Clone(s.holds)
	c.mu.Unlock()
	var reports []func()
	for _, h := range holds {
		reports = append(reports, h.tellLoss(loss))
	}
	s.renew()
	c.mu.Lock()
	unused := len(s.holds) == 0
	c.mu.Unlock()
	if unused {
		s.entry.SeeLoss()
	}
	return func() { callAll(reports) }
}

// renew makes the waiters contend for another entry.
func (s *sharedEntry) renew() {
	c := s.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == s {
		c.drop()
		c.contendForAll()
	}
}

// callAll calls every function, even if one of them panics.
func callAll(fs []func()) {
	if len(fs) > 0 {
		defer callAll(fs[1:])
		fs[0]()
	}
}

// lookForOthers watches the queue until another contender waits, and then
// removes the cohort's entry if it is idle. If that contender has given up
// meanwhile, the removal was needless, but costs only a new node.
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

// forgetOthers records that it is unknown whether other clients wait, so that
// the number of turns is limited. Otherwise a client that cannot watch the
// queue could keep the lock forever.
func (s *sharedEntry) forgetOthers() {
	s.cohort.mu.Lock()
	defer s.cohort.mu.Unlock()
	if s.others == none {
		s.others = unknown
	}
}

// noteOthers records whether other clients wait in the queue. If none waits,
// the count of turns starts over. If some wait and only readers hold the entry,
// no further reader is admitted.
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

// othersIn reports whether another contender waits behind the entry. If nodes
// lacks the entry, othersIn returns the previous result.
func (s *sharedEntry) othersIn(nodes []driver.Node) others {
	i := engine.Index(nodes, s.entry.Place().Node)
	// The node was renamed or removed; the watch of the node finds out which.
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
