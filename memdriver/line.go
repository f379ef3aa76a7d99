package memdriver

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
)

// line is the connection of one session with the store, and what is wrong with
// it. As long as nothing is, a request is a function call. The store's mutex
// guards it.
type line struct {
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
func (l *line) cut() bool { return l.cuts > 0 || l.store.cuts > 0 }

// whole reports whether nothing is wrong with the line.
func (l *line) whole() bool {
	return !l.cut() && l.delay == 0 && l.replies == 0 && len(l.losses) == 0
}

// fate returns what becomes of the next request of that kind, if not all is
// well.
func (l *line) fate(op faults.Op) (fate loss, lost bool) {
	i := slices.IndexFunc(l.losses, func(loss loss) bool { return loss.op == op })
	if i < 0 {
		return loss{}, false
	}
	fate = l.losses[i]
	l.losses = slices.Delete(l.losses, i, i+1)
	return fate, true
}

// The functions below are called without the store's mutex.

// travel returns when what was sent at that time has passed from one end to the
// other, which takes half the delay, and longer while the line is cut. It
// returns false if quit closes first.
func (l *line) travel(sent time.Time, quit <-chan struct{}) bool {
	l.store.mu.Lock()
	way := l.delay / 2
	l.store.mu.Unlock()
	if !sleep(way-time.Since(sent), quit) {
		return false
	}
	for {
		l.store.mu.Lock()
		cut, healed := l.cut(), l.store.healed
		l.store.mu.Unlock()
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

// carry takes a request to the store, calls serve there with the store's mutex
// held, and returns when the reply has come back. It returns false if the
// request or the reply is lost, or if quit closes first.
func (l *line) carry(op faults.Op, quit <-chan struct{}, serve func()) bool {
	l.store.mu.Lock()
	fate, lost := l.fate(op)
	if fate.held != nil {
		fate.held.serve = serve
	}
	connection := l.resets
	l.store.mu.Unlock()
	if lost && !fate.committed || !l.travel(time.Now(), quit) {
		return false
	}
	l.store.mu.Lock()
	broke := l.resets != connection
	if !broke {
		serve()
	}
	replies := l.replies
	l.store.mu.Unlock()
	switch {
	case broke, lost:
		return false
	case replies > 0:
		return sleep(replies, quit) // a later cut does not stop it
	}
	return l.travel(time.Now(), quit) && !l.broke(connection)
}

// broke reports whether the connection of that number is not the present one.
func (l *line) broke(connection int) bool {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.resets != connection
}

// carryNotices delivers what is in the inbox, as fast as the line permits. A
// notice stays in the inbox until it has arrived, so that none overtakes it.
func (s *session) carryNotices() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for len(s.inbox) > 0 {
		e := s.inbox[0]
		s.store.mu.Unlock()
		arrived := s.line.travel(e.sent, s.lease.Done())
		s.store.mu.Lock()
		if !arrived {
			return
		}
		s.hear(e)
		s.inbox = s.inbox[1:]
	}
}
