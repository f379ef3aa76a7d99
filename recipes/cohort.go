package recipes

import "sync"

// cohort is the goroutines of one client that use one lock with retention. They
// share an entry in the queue, and wait for it in the order of arrival.
//
// The entry is lent to holds of goroutines that know nothing of each other: to
// one exclusive hold or to several shared ones at a time, or to none for a
// while. At most one attempt contends for an entry, and none while there is
// one.
//
// While mu is held, the mutex of a hold or of an entry may be taken, never the
// other way round.
type cohort struct {
	m     *RWMutex
	users int // calls, attempts and entries of the cohort; guarded by cohorts.mu

	mu      sync.Mutex
	waiters []*waiter      // in the order of arrival
	attempt *sharedAttempt // nil: none
	shared  *sharedEntry   // nil: none
}

// cohorts finds the cohort of a lock. A cohort without users is forgotten.
type cohorts struct {
	mu     sync.Mutex
	byName map[string]*cohort
}

// use returns the cohort of a lock's name for a call. The call ends with unuse.
func (cs *cohorts) use(m *RWMutex) *cohort {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.byName[m.name]
	if c == nil {
		if cs.byName == nil {
			cs.byName = make(map[string]*cohort)
		}
		c = &cohort{m: m}
		cs.byName[m.name] = c
	}
	c.users++
	return c
}

// addUser counts an attempt or an entry of the cohort. It ends with unuse.
func (c *cohort) addUser() {
	cs := &c.m.client.cohorts
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.users++
}

func (c *cohort) unuse() {
	cs := &c.m.client.cohorts
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(cs.byName, c.m.name)
	}
}

// The methods below are called with mu held.

// grant admits the first waiter, and those behind it that may hold beside it.
func (c *cohort) grant() {
	for len(c.waiters) > 0 && c.shared != nil {
		l := c.shared.admit(c.waiters[0].mode)
		if l == nil {
			break
		}
		c.waiters[0].granted <- l
		c.waiters[0] = nil
		c.waiters = c.waiters[1:]
	}
	c.detachIfOthersWait()
}

// detachIfOthersWait gives up an entry that only readers hold if another
// contender waits for it. It is called when that contender is seen, and when a
// hold has ended or has become shared.
func (c *cohort) detachIfOthersWait() {
	if c.shared != nil && c.shared.others == waiting {
		c.detach()
	}
}

// detach gives up an entry that only readers hold, without waiting for them. No
// hold is added to the entry any more, the store is told that it is shared, and
// the last of the holds removes it. The waiters contend for another entry.
func (c *cohort) detach() {
	s := c.shared
	if s.mode() != Shared || s.entry.Loss() != nil {
		return
	}
	c.drop()
	c.contend()
	if s.exclusive && s.entry.MarkRenamed(c.m.options.prefix[Shared]) {
		c.m.client.spawn(s.rename)
	}
}

// drop forgets the entry: it is given up, detached or lost.
func (c *cohort) drop() {
	s := c.shared
	c.shared = nil
	s.stop()
	c.unuse()
}

// passOn admits waiters to an entry that may have no holds. If it has none
// then, it is kept for a while, or passOn reports that the caller has to remove
// it, without mu.
func (c *cohort) passOn(s *sharedEntry) (remove bool) {
	if c.shared == s {
		c.grant()
	}
	switch {
	case len(s.holds) > 0:
		return false
	case c.shared != s: // detached
		return true
	case !s.spent() && len(c.waiters) == 0 && s.others != waiting && !s.entry.IsRenamed():
		s.keepIdle()
		return false
	}
	c.drop()
	return true
}
