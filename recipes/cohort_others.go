package recipes

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// watchOthers begins to look for contenders outside the cohort. It is called
// with cohort.mu held.
func (s *sharedEntry) watchOthers() {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.cohort.m.client.spawn(func() {
		defer cancel()
		s.lookForOthers(ctx)
	})
}

// brief is the shortest time that a watch normally lasts. But the queue may
// change all the time, or a driver may end watches without a change. So if more
// than two watches in a row end sooner, lookForOthers pauses before it arms the
// next one: otherwise it would send request after request.
const brief = 100 * time.Millisecond

// lookForOthers watches the queue until another contender waits. It may notice
// a contender so late that the contender has given up again. The cohort then
// gives its entry up although no contender waits, and has to create another
// node, which does no other harm.
func (s *sharedEntry) lookForOthers(ctx context.Context) {
	pause := engine.Retries{New: s.cohort.m.options.backOff}
	early := 0 // how many watches in a row have ended early
	for ctx.Err() == nil && !s.entry.SessionOver() {
		began := time.Now()
		watch, nodes, err := s.entry.WatchQueue(ctx)
		if err != nil {
			s.forgetOthers()
			engine.Sleep(pause.NextEndless(), ctx.Done())
			continue
		}
		pause.Succeeded()
		if s.noteOthers(nodes) == waiting {
			watch.Stop()
			s.removeIdle()
			return
		}
		select {
		case <-watch.C:
		case <-ctx.Done():
		}
		watch.Stop()
		if early++; time.Since(began) > brief {
			early = 0
		}
		if early > 2 { // a driver may end watches early, again and again
			engine.Sleep(time.Millisecond<<min(early-2, 7), ctx.Done())
		}
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
	c.grant()
	return s.others
}

// othersIn returns whether this list shows a contender that waits behind the
// entry. If the list does not show the entry itself, othersIn returns what was
// known before.
func (s *sharedEntry) othersIn(nodes []driver.Node) others {
	own := s.entry.Place().Node
	i := engine.Index(nodes, own)
	// If the list does not show the node under this name, the node was renamed
	// or removed. The entry's own watch finds out which.
	if i < 0 {
		return s.others
	}
	for _, n := range nodes[i+1:] {
		if modeOf(own) == Exclusive || modeOf(n) == Exclusive {
			return waiting
		}
	}
	return none
}
