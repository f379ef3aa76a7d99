package memdriver

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
)

// connection is the connection of one session with the store, and what is wrong with
// it. As long as nothing is, a request is a function call. The store's mutex
// guards it.
type connection struct {
	store   *Store
	cuts    int // of this line alone
	resets  int // how often the connection broke
	delay   time.Duration
	replies time.Duration // how much later than that replies come
	losses  []loss
}

// loss is what becomes of the next request of a kind: it is lost, or, if the
// store is to carry it out, its reply is. A request that is held is lost to the
// session only.
type loss struct {
	op        faults.Op
	committed bool
	held      *held
}

// held is a request that is on its way, from the time at which the session has
// sent it.
type held struct{ serve func() }

// cut reports whether nothing passes.
func (c *connection) cut() bool { return c.cuts > 0 || c.store.cuts > 0 }

// intact reports whether nothing is wrong with the line.
func (c *connection) intact() bool {
	return !c.cut() && c.delay == 0 && c.replies == 0 && len(c.losses) == 0
}

// nextLoss returns what becomes of the next request of that kind, if not all is
// well.
func (c *connection) nextLoss(op faults.Op) (fate loss, lost bool) {
	i := slices.IndexFunc(c.losses, func(loss loss) bool { return loss.op == op })
	if i < 0 {
		return loss{}, false
	}
	fate = c.losses[i]
	c.losses = slices.Delete(c.losses, i, i+1)
	return fate, true
}

// The functions below are called without the store's mutex.

// transfer returns when what was sent at that time has passed from one end to the
// other, which takes half the delay, and longer while the line is cut. It
// returns false if quit closes first.
func (c *connection) transfer(sent time.Time, quit <-chan struct{}) bool {
	c.store.mu.Lock()
	way := c.delay / 2
	c.store.mu.Unlock()
	if !sleep(way-time.Since(sent), quit) {
		return false
	}
	for {
		c.store.mu.Lock()
		cut, healed := c.cut(), c.store.healed
		c.store.mu.Unlock()
		if !cut {
			return true
		}
		select {
		case <-healed:
		case <-quit:
			return false
		}
	}
}

// sleep returns false if quit closes before d has passed.
func sleep(d time.Duration, quit <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-quit:
		return false
	}
}

// roundTrip takes a request to the store, calls serve there with the store's mutex
// held, and returns when the reply has come back. It returns false if the
// request or the reply is lost, or if quit closes first.
func (c *connection) roundTrip(op faults.Op, quit <-chan struct{}, serve func()) bool {
	c.store.mu.Lock()
	fate, lost := c.nextLoss(op)
	if fate.held != nil {
		fate.held.serve = serve
	}
	resets := c.resets
	c.store.mu.Unlock()
	if lost && !fate.committed || !c.transfer(time.Now(), quit) {
		return false
	}
	c.store.mu.Lock()
	broke := c.resets != resets
	if !broke {
		serve()
	}
	replies := c.replies
	c.store.mu.Unlock()
	switch {
	case broke, lost:
		return false
	case replies > 0:
		return sleep(replies, quit) // a later cut does not stop it
	}
	return c.transfer(time.Now(), quit) && !c.brokeSince(resets)
}

// brokeSince reports whether the connection of that number is not the present one.
func (c *connection) brokeSince(resets int) bool {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.resets != resets
}

// deliverNotices delivers what is in the inbox, as fast as the line permits. A
// notice stays in the inbox until it has arrived, so that none overtakes it.
func (s *session) deliverNotices() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for len(s.inbox) > 0 {
		e := s.inbox[0]
		s.store.mu.Unlock()
		arrived := s.conn.transfer(e.sent, s.lease.Done())
		s.store.mu.Lock()
		if !arrived {
			return
		}
		s.receive(e)
		s.inbox = s.inbox[1:]
	}
}
