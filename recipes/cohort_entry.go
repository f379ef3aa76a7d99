package recipes

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// sharedEntry is an entry that the goroutines of a cohort share: their holds
// borrow it, see hold. After the cohort has detached the entry, no further hold
// gets it, and the entry is removed when its last hold ends. The
// mutex cohort.mu guards the fields.
//
// A turn is a time in which one goroutine holds the entry exclusively, or a
// time in which goroutines hold it shared without a gap.
type sharedEntry struct {
	cohort *cohort
	entry  *engine.Entry
	want   *want // what the node was created for

	holds  []*hold            // the holds that use the entry now
	turns  int                // how many turns count towards Retention.Turns, the present one included
	others others             // whether the last list of the queue showed a waiter outside the cohort
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

// spent reports whether the cohort has used up Retention.Turns, so that no
// further turn may begin on the entry. Until a list of the queue is
// answered, spent assumes that no other contender waits, but for no longer than
// Retention.Idle.
func (s *sharedEntry) spent() bool {
	retention := s.cohort.queue.options.retention
	if s.others == none || s.others == unknown && time.Since(s.entry.Since()) < retention.Idle {
		return false
	}
	return s.turns >= retention.Turns
}

// admit returns a Lock of a new hold, or nil if a caller that wants that mode
// has to wait. A reader that joins other readers begins no new turn.
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

// keepIdle keeps an entry without holds for a while. If the entry still has no
// holds after that, it is removed.
func (s *sharedEntry) keepIdle() {
	d := s.cohort.queue.options.retention.Idle
	if s.idle == nil {
		s.idle = time.AfterFunc(d, s.removeIdle)
	} else {
		s.idle.Reset(d)
	}
}

// retire stops the timer and the watch of an entry that the cohort drops.
func (s *sharedEntry) retire() {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.cancel != nil {
		s.cancel()
	}
}

// watchOthers begins to look for contenders outside the cohort. It is called
// with cohort.mu held.
func (s *sharedEntry) watchOthers() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.cohort.queue.client.spawn(func() {
		defer cancel()
		s.lookForOthers(ctx)
	})
}

// admitReaders is called when a hold has become shared. It admits the readers
// that wait for the entry.
func (s *sharedEntry) admitReaders() {
	c := s.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == s {
		c.admitWaiters()
	}
}

// takeBack removes a hold that has ended from the holds of the entry. After
// that, waiters of the cohort get the entry, or the client keeps it for a
// while, or giveBack removes it: see passOn.
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

// removeNode removes an entry that the cohort has dropped. The waiters of the
// cohort then contend for another entry.
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

// tellShared tells the store that the entry is shared. It is for an entry that the
// cohort has detached. If the request fails, the reaper repeats it.
func (s *sharedEntry) tellShared() {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	_ = s.entry.Rename(ctx)
}

// tellHolds tells the holds that the entry was lost. The waiters of the cohort
// contend for another entry.
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

// callAll calls the functions in their order, also if one of them panics.
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

// forgetOthers is called when the queue could not be watched. The last list may
// be out of date by now. So turns count again, as they do before the first
// list. Otherwise a client whose watch fails for long would keep the lock for
// as long as its goroutines take it.
func (s *sharedEntry) forgetOthers() {
	s.cohort.mu.Lock()
	defer s.cohort.mu.Unlock()
	if s.others == none {
		s.others = unknown
	}
}

// noteOthers is called with a new list of the queue. It stores, and returns,
// whether the list shows that a contender outside the cohort waits. If none
// waits, the count of turns begins anew, so that waiters of the cohort may get
// the lock. If one waits, the cohort gives up an entry that only readers hold.
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

// othersIn returns whether this list shows a contender that waits behind the
// entry. If the list does not show the entry itself, othersIn returns what was
// known before.
func (s *sharedEntry) othersIn(nodes []driver.Node) others {
	i := engine.Index(nodes, s.entry.Place().Node)
	// If the list does not show the node under this name, the node was renamed
	// or removed. The entry's own watch finds out which.
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
