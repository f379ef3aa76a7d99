package recipes

import "sync"

// cohort is the goroutines of one client that use one lock with retention. They
// share an entry in the queue, and wait for it in the order of arrival. Through
// the entry, one of them holds the lock exclusively, or several shared, or none
// for a while. The cohort contends only while it has no entry.
//
// A goroutine that holds mu may lock the mutex of a hold or of an entry, but
// not the other way round.
type cohort struct {
	queue *queue
	users int // how many calls and entries use the cohort; guarded by cohorts.mu

	mu         sync.Mutex
	waiters    []*waiter    // in the order of arrival
	contending *cohortCall  // contends for an entry; nil: none
	shared     *sharedEntry // the entry of the cohort; nil: none
}

// cohorts holds the cohorts of a client by the name of their lock. A cohort
// without users is dropped.
type cohorts struct {
	mu     sync.Mutex
	byName map[string]*cohort
}

// use returns the cohort of a queue, and makes it if there is none. The caller
// has to call unuse.
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

// addUser keeps the cohort from being dropped until unuse.
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

// admitWaiters gives Locks to the waiters in their order, up to the first one
// that may not hold the entry now.
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

// detachIfOthersWait is called when a contender outside the cohort is seen, and
// when a hold has ended or has become shared.
func (c *cohort) detachIfOthersWait() {
	if c.shared != nil && c.shared.others == waiting {
		c.detach()
	}
}

// detach gives up an entry that only readers hold, without waiting until they
// unlock: it admits no further hold, the store is told that the entry is
// shared, and the last hold removes it. The waiters contend for another entry.
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

// drop makes the cohort forget its entry, so that it can contend for another
// one.
func (c *cohort) drop() {
	s := c.shared
	c.shared = nil
	s.retire()
	c.unuse()
}

// removeUnused removes, in the background, an entry that no goroutine holds and
// that was of no use to a call: a writer cannot hold a reader's entry.
// Otherwise the call would wait for Retention.Idle, although no contender holds
// the lock.
//
// removed closes when the removal has ended. It is nil if nothing is removed.
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

// passOn admits waiters after a hold has ended, or when the entry is new. It
// keeps an entry without holds for a while if no contender waits and
// Retention.Turns is not used up. If it returns true, the caller has to remove
// the entry, without mu.
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
