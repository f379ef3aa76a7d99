package recipes

import (
	"context"
	"slices"
	"time"

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
	cohort    *cohort
	entry     *engine.Entry
	exclusive bool // whether the node was created for a writer

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

// grant is called when the attempt of the cohort has got an entry e. It grants
// e to s, for the cohort.
func (s *sharedEntry) grant(_ context.Context, a *attempt, e *engine.Entry) error {
	s.entry, s.exclusive = e, a.mode == Exclusive
	return e.Grant(s)
}

// mode returns how the goroutines hold the entry now, or zero if none does.
func (s *sharedEntry) mode() Mode {
	var strongest Mode
	for _, h := range s.holds {
		strongest = max(strongest, h.modeNow())
	}
	return strongest
}

// spent reports whether the cohort has used up Retention.Turns, so that no
// further turn may begin on the entry. Until a list of the queue is
// answered, spent assumes that no other contender waits, but for no longer than
// Retention.Idle.
func (s *sharedEntry) spent() bool {
	retention := s.cohort.m.options.retention
	if s.others == none || s.others == unknown && time.Since(s.entry.Since()) < retention.Idle {
		return false
	}
	return s.turns >= retention.Turns
}

// admit returns a Lock of a new hold, or nil if a caller that wants that mode
// has to wait. A reader that joins other readers begins no new turn.
func (s *sharedEntry) admit(mode Mode) *Lock {
	held := s.mode()
	if s.entry.Loss() != nil || held == Exclusive {
		return nil
	}
	if mode == Exclusive && (held == Shared || !s.exclusive || s.entry.IsRenamed()) {
		return nil
	}
	if held == 0 {
		if s.spent() {
			return nil
		}
		if s.others != none {
			s.turns++
		}
	}
	return s.lend(mode)
}

func (s *sharedEntry) lend(mode Mode) *Lock {
	h, l := newHold(s.cohort.m, s.entry, s, mode)
	s.holds = append(s.holds, h)
	if s.idle != nil {
		s.idle.Stop()
	}
	return l
}

// keepIdle keeps an entry without holds for a while. If the entry still has no
// holds after that, it is removed.
func (s *sharedEntry) keepIdle() {
	d := s.cohort.m.options.retention.Idle
	if s.idle == nil {
		s.idle = time.AfterFunc(d, s.removeIdle)
	} else {
		s.idle.Reset(d)
	}
}

// stop stops the timer and the watch of an entry that the cohort drops.
func (s *sharedEntry) stop() {
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.cancel != nil {
		s.cancel()
	}
}

// The methods below are called without cohort.mu.

// becameShared is called when a hold has become shared. It admits the readers
// that wait for the entry.
func (s *sharedEntry) becameShared() {
	c := s.cohort
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == s {
		c.grant()
	}
}

// giveBack removes a hold that has ended from the holds of the entry. After
// that, waiters of the cohort get the entry, or the client keeps it for a
// while, or giveBack removes it: see passOn.
func (s *sharedEntry) giveBack(h *hold) error {
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
	return s.remove()
}

// remove removes an entry that the cohort has dropped. The waiters of the
// cohort then contend for another entry.
func (s *sharedEntry) remove() error {
	defer s.cohort.contendAgain() // runs also if a hook panics
	return s.entry.Remove(unlockTimeout)
}

// removeIdle removes the entry if it has no holds.
func (s *sharedEntry) removeIdle() {
	c := s.cohort
	if c.m.client.beginCall() != nil {
		return // the client is being closed; the store removes the node with the session
	}
	defer c.m.client.endCall()
	c.mu.Lock()
	unused := c.shared == s && len(s.holds) == 0
	if unused {
		c.drop()
	}
	c.mu.Unlock()
	if unused {
		_ = s.remove()
	}
}

// rename tells the store that the entry is shared. It is for an entry that the
// cohort has detached. If the request fails, the reaper repeats it.
func (s *sharedEntry) rename() {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	_ = s.entry.Rename(ctx)
}

// Lose tells the holds that the entry was lost. The waiters of the cohort
// contend for another entry.
func (s *sharedEntry) Lose(loss engine.Loss) (report func()) {
	c := s.cohort
	c.mu.Lock()
	holds := slices.Clone(s.holds) // no hold is added to a lost entry
	c.mu.Unlock()
	var reports []func()
	for _, h := range holds {
		reports = append(reports, h.Lose(loss))
	}
	c.mu.Lock()
	unused := len(s.holds) == 0
	if c.shared == s {
		c.drop()
		c.contend()
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
