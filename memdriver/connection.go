package memdriver

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver/faults"
)

// connection simulates one session's connection to the store, with the faults
// that a test has injected. All fields are guarded by the store's mutex.
type connection struct {
	store   *Store
	cuts    int // cuts not yet healed
	resets  int
	delay   time.Duration // round-trip delay
	replies time.Duration // extra delay of each reply
	losses  []loss        // faults for future requests
}

// loss makes the next request for op fail. If committed is set, only the reply
// is lost. If held is set, the request arrives later.
type loss struct {
	op        faults.Op
	committed bool
	held      *held
}

// held is a request that will arrive late. Before it is sent, serve is nil.
type held struct{ serve func() }

func (c *connection) cut() bool { return c.cuts > 0 || c.store.cuts > 0 }

func (c *connection) intact() bool {
	return !c.cut() && c.delay == 0 && c.replies == 0 && len(c.losses) == 0
}

func (c *connection) nextLoss(op faults.Op) (next loss, lost bool) {
	i := slices.IndexFunc(c.losses, func(l loss) bool { return l.op == op })
	if i < 0 {
		return loss{}, false
	}
	next = c.losses[i]
	c.losses = slices.Delete(c.losses, i, i+1)
	return next, true
}

// The functions below must be called without the store's mutex.

// transfer waits until a message sent at that time arrives: after half of
// c.delay and any cut. It returns false if quit closes first.
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

// roundTrip sends a request, which calls serve under the store's mutex. It
// returns false without a reply, or if quit closes first.
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
		return sleep(replies, quit) // a later cut cannot stop the reply
	}
	return c.transfer(time.Now(), quit) && !c.brokeSince(resets)
}

func (c *connection) brokeSince(resets int) bool {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.resets != resets
}

// deliverNotices delivers the inbox in order. It removes a notice only after
// its delivery. Otherwise a newer one could find the inbox empty and overtake.
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
