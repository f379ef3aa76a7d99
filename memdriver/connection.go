package memdriver

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver/faults"
)

// connection is one session's connection to the store, with its faults. Without
// faults a request is a function call. Guarded by the store's mutex.
type connection struct {
	store   *Store
	cuts    int           // cuts by Faults.CutOff that have not healed yet
	resets  int           // number of times that the connection broke
	delay   time.Duration // of a request and its reply together
	replies time.Duration // additional delay of a reply
	losses  []loss        // faults that await a request of their kind
}

// loss is a fault of the next request of one kind. If committed is set, the
// store carries the request out and the reply is lost. If held is set, the
// session gets no answer, and the request reaches the store later. Otherwise
// the request is lost.
type loss struct {
	op        faults.Op
	committed bool
	held      *held
}

// held is a request that reaches the store later. Its serve is nil until the
// session has sent the request.
type held struct{ serve func() }

// cut reports whether the connection currently transfers nothing.
func (c *connection) cut() bool { return c.cuts > 0 || c.store.cuts > 0 }

// intact reports whether the connection has no fault.
func (c *connection) intact() bool {
	return !c.cut() && c.delay == 0 && c.replies == 0 && len(c.losses) == 0
}

// nextLoss removes and returns the loss of the next request of that kind, if
// any.
func (c *connection) nextLoss(op faults.Op) (next loss, lost bool) {
	i := slices.IndexFunc(c.losses, func(l loss) bool { return l.op == op })
	if i < 0 {
		return loss{}, false
	}
	next = c.losses[i]
	c.losses = slices.Delete(c.losses, i, i+1)
	return next, true
}

// The functions below are called without the store's mutex.

// transfer waits until a message has arrived at the other end, half of c.delay
// after it was sent or, if the connection is cut then, when the cut has healed.
// It returns false if quit closes first.
func (c *connection) transfer(sent time.Time, quit <-chan struct{}) bool {
	c.store.mu.Lock()
	oneWay := c.delay / 2
	c.store.mu.Unlock()
	if !sleep(oneWay-time.Since(sent), quit) {
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

// sleep waits for d. It returns false if quit closes first.
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

// roundTrip sends a request to the store and waits for the reply. On arrival it
// calls serve with the store's mutex held. It returns false if the request or
// the reply is lost, or if quit closes first.
func (c *connection) roundTrip(op faults.Op, quit <-chan struct{}, serve func()) bool {
	c.store.mu.Lock()
	loss, lost := c.nextLoss(op)
	if loss.held != nil {
		loss.held.serve = serve
	}
	resets := c.resets
	c.store.mu.Unlock()
	if lost && !loss.committed || !c.transfer(time.Now(), quit) {
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
		return sleep(replies, quit) // a cut that begins now does not stop this reply
	}
	return c.transfer(time.Now(), quit) && !c.brokeSince(resets)
}

// brokeSince reports whether the connection has broken since c.resets had that
// value.
func (c *connection) brokeSince(resets int) bool {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.resets != resets
}

// deliverNotices delivers the notices in the inbox in order, each when it has
// arrived. A notice stays in the inbox until it is delivered, so that
// sendNotice puts later ones behind it.
func (s *session) deliverNotices() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for len(s.inbox) > 0 {
		n := s.inbox[0]
		s.store.mu.Unlock()
		arrived := s.conn.transfer(n.sent, s.lease.Done())
		s.store.mu.Lock()
		if !arrived {
			return
		}
		s.receive(n)
		s.inbox = s.inbox[1:]
	}
}
