package recipes

import "sync"

// cohort is the goroutines of one client that use one lock with retention. They
// share an entry in the queue, and wait for it in the order of arrival.
//
// To have the entry does not mean to hold the lock. Through the entry, one
// goroutine holds the lock exclusively, or several hold it shared, or none
// holds it for a while. While the cohort has no entry, at most one attempt
// contends for one. While the cohort has an entry, there is no attempt.
//
// A goroutine that holds mu may lock the mutex of a hold or of an entry. A
// goroutine that holds one of those must not lock mu, since the two could then
// block each other for ever.
type cohort struct {
	queue *queue
	users int // how many calls, attempts and entries use the cohort; guarded by cohorts.mu

	mu         sync.Mutex
	waiters    []*waiter    // in the order of arrival
	contending *cohortCall  // the attempt to get an entry; nil: none
	shared     *sharedEntry // the entry of the cohort; nil: none
}

// cohorts holds the cohorts of a client, by the lock's name. A cohort without
// users is dropped.
type cohorts struct {
	mu     sync.Mutex
	byName map[string]*cohort
}

// use returns the cohort for a call of Lock, RLock, TryLock or TryRLock, and
// makes the cohort if there is none. When that call ends, it has to call unuse.
func (cs *cohorts) use(q *queue) *cohort {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byName[q.name]
	if c == nil {
		if cs.byName == nil {
			cs.byName = make(map[string]*cohort)
		}
		c = &cohort{queue: q}
		cs.byName[q.name] = c
	}
	c.users++
	return c
}

// addUser counts an attempt or an entry as a user of the cohort, so that the
// cohort is not dropped. unuse has to be called when the attempt or the entry
// has ended.
func (c *cohort) addUser() {
	cs := &c.queue.client.cohorts
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.users++
}

func (c *cohort) unuse() {
	cs := &c.queue.client.cohorts
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(cs.byName, c.queue.name)
	}
}

// The methods below are called with mu held.

// admitWaiters gives Locks to the waiters in their order, up to the first waiter that
// may not hold the entry now.
func (c *cohort) admitWaiters() {
	for len(c.waiters) > 0 && c.shared != nil {
		l := c.shared.admit(c.waiters[0].want)
		if l == nil {
			break
		}
		c.waiters[0].granted <- l
		c.waiters[0] = nil
		c.waiters = c.waiters[1:]
	}
	c.detachIfOthersWait()
}

// detachIfOthersWait gives up an entry that only readers hold if a contender
// outside the cohort waits for the lock. It is called when such a contender is
// seen, and when a hold has ended or has become shared.
func (c *cohort) detachIfOthersWait() {
	if c.shared != nil && c.shared.others == waiting {
		c.detach()
	}
}

// detach gives up an entry that only readers hold, without waiting until they
// unlock. No hold is added to the entry any more, the store is told that the
// entry is shared, and the last of the holds removes the entry. The waiters
// contend for another entry.
func (c *cohort) detach() {
	s := c.shared
	if held, exclusively := s.inUse(); !held || exclusively || s.entry.Loss() != nil {
		return
	}
	c.drop()
	c.contendForAll()
	if w := s.want.downgraded; w != nil && s.entry.MarkRenamed(c.queue.prefix(w)) {
		c.queue.client.spawn(s.tellShared)
	}
}

// drop makes the cohort forget its entry, so that the cohort can contend for
// another one. It is called when the entry was lost, is about to be removed, or
// is detached.
func (c *cohort) drop() {
	s := c.shared
	c.shared = nil
	s.retire()
	c.unuse()
}

// removeUnused removes the entry of the cohort in the background, if there is
// one that no goroutine holds. It is called after the entry was of no use to a
// call: a writer cannot hold an entry whose node was created for a reader.
// Without the removal, the call would wait for as long as Retention.Idle,
// although no contender holds the lock.
//
// The result is closed when the removal has ended. It is nil if nothing is removed.
func (c *cohort) removeUnused() (removed <-chan struct{}) {
	s := c.shared
	if s == nil || len(s.holds) > 0 {
		return nil
	}
	c.drop()
	done := make(chan struct{})
	// While the client is being closed, no goroutine starts, and no call waits.
	c.queue.client.spawn(func() {
		defer close(done)
		_ = s.removeNode()
	})
	return done
}

// passOn grants the lock to waiters, after a hold has ended or when the entry
// is new. If the entry then has no holds, passOn decides what becomes of it. It
// keeps the entry for a while if no contender waits, Retention.Turns is not
// used up, and the entry was neither dropped nor renamed. Otherwise passOn
// returns true, and the caller has to unlock mu and then to remove the entry.
func (c *cohort) passOn(s *sharedEntry) (remove bool) {
	if c.shared == s {
		c.admitWaiters()
	}
	switch {
	case len(s.holds) > 0:
		return false
	case c.shared != s: // the entry does not belong to the cohort any more
		return true
	case !s.spent() && len(c.waiters) == 0 && s.others != waiting && !s.entry.IsRenamed():
		s.keepIdle()
		return false
	}
	c.drop()
	return true
}
