package recipes

import "sync"

// cohort represents the goroutines of one client that share a lock's node in
// the store (see WithRetention). They take turns in order of arrival. Only if
// the cohort has no node does the client join the queue.
//
// Lock order: mu before the mutex of a hold or entry.
type cohort struct {
	queue *queue
	users int

	mu         sync.Mutex
	waiters    []*waiter // in order of arrival
	contending *cohortCall
	shared     *sharedEntry
}

// cohorts holds a client's cohorts by lock name. A cohort that is no longer
// used is removed.
type cohorts struct {
	mu     sync.Mutex
	byName map[string]*cohort
}

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

// addUser keeps the cohort in the map until unuse is called.
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

// The methods below require c.mu.

// admitWaiters grants the lock to waiters in order, up to the first that cannot
// have it yet.
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

// detachIfOthersWait calls detach if another client is known to wait for the
// lock.
func (c *cohort) detachIfOthersWait() {
	if c.shared != nil && c.shared.others == waiting {
		c.detach()
	}
}

// detach gives up an entry held only by readers, because another client waits.
// No further reader is admitted, and the last Unlock removes the entry. A
// writer's node is renamed, so that readers of other clients need not wait for
// it.
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

// drop detaches the entry from the cohort, which may then contend for a new
// one.
func (c *cohort) drop() {
	s := c.shared
	c.shared = nil
	s.retire()
	c.unuse()
}

// removeUnused removes an idle reader's entry that would block the first
// waiter, a writer. Otherwise the writer would wait for Retention.Idle although
// nobody holds the lock.
//
// The returned channel closes when the removal has ended. It is nil if there is
// nothing to remove.
func (c *cohort) removeUnused() (removed <-chan struct{}) {
	s := c.shared
	if s == nil || len(s.holds) > 0 {
		return nil
	}
	c.drop()
	done := make(chan struct{})
	// If the client is being closed, spawn does not run the function and done
	// never closes, but then no call waits for it.
	c.queue.client.spawn(func() {
		defer close(done)
		_ = s.removeNode()
	})
	return done
}

// passOn hands the entry to waiters after a hold has ended. With no waiters, it
// keeps the entry idle unless another client waits or the turns are used up. If
// it returns true, the caller must remove the entry after releasing mu.
func (c *cohort) passOn(s *sharedEntry) (remove bool) {
	if c.shared == s {
		c.admitWaiters()
	}
	switch {
	case len(s.holds) > 0:
		return false
	case c.shared != s: // the cohort has already dropped this entry
		return true
	case !s.spent() && len(c.waiters) == 0 && s.others != waiting && s.entry.Reusable():
		s.keepIdle()
		return false
	}
	c.drop()
	return true
}
