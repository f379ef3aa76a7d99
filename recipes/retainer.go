package recipes

import (
	"context"
	"sync"
	"time"
)

// retainer is what the goroutines of one client who use one lock with retention share: a place
// in the queue, and a line of their own for it.
//
// The place is a hold. It is held by Locks of goroutines that know nothing of each other, one
// exclusive one or several shared ones at a time, or by nobody for a while. At most one pursuit
// contends for a place at the store, and none while there is one.
//
// mu may be held when that of a hold is taken, never the other way round.
type retainer struct {
	m    *RWMutex
	refs int // calls, pursuits and places that use it; guarded by retainers.mu

	mu      sync.Mutex
	line    []*local // those who wait, in the order of arrival
	pursuit *pursuit // nil: none
	place   *hold    // nil: none; what follows belongs to it
	inUse   bool     // by Locks, or it is not known yet that it is not
	closing bool     // it is to be given up when nobody uses it
	others  others   // who may be waiting for it
	turns   int      // since they do
	idle    *time.Timer
	unwatch context.CancelFunc // ends the watch of its queue, if that has begun
}

// others says whether anybody outside waits for the lock.
type others int

const (
	unknown others = iota // nobody has looked
	none
	waiting
)

// retainers finds the retainer of a lock. One that nobody uses is forgotten.
type retainers struct {
	mu     sync.Mutex
	byName map[string]*retainer
}

func (rs *retainers) use(m *RWMutex) *retainer {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.byName[m.name]
	if r == nil {
		if rs.byName == nil {
			rs.byName = make(map[string]*retainer)
		}
		r = &retainer{m: m}
		rs.byName[m.name] = r
	}
	r.refs++
	return r
}

// ref changes the number of those who use the retainer.
func (r *retainer) ref(change int) {
	rs := &r.m.sessions.retainers
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.refs += change; r.refs == 0 {
		delete(rs.byName, r.m.name)
	}
}

// The methods below are called with r.mu held.

// settle makes a hold that was just won the place. It reports false if it has been lost already.
func (r *retainer) settle(h *hold) bool {
	if h.gone() { // else the one who loses it finds it here
		return false
	}
	r.ref(1)
	r.place, r.inUse, r.closing, r.others, r.turns = h, true, false, unknown, 0
	return true
}

// drop is for a place that is given up or lost.
func (r *retainer) drop() {
	if r.idle != nil {
		r.idle.Stop()
	}
	if r.unwatch != nil {
		r.unwatch()
	}
	r.place, r.idle, r.unwatch = nil, nil, nil
	r.ref(-1)
}

// count takes down a turn, if others wait, or nobody has been able to find out for long.
func (r *retainer) count() {
	retention := r.m.options.retention
	if r.others == none || r.others == unknown && time.Since(r.place.since) < retention.Idle {
		return
	}
	if r.turns++; r.turns >= retention.Turns {
		r.closing = true
	}
}

// admit lets somebody in at once, if it is his turn. It returns nil if it is not.
func (r *retainer) admit(mode Mode) *Lock {
	if r.place == nil || r.closing {
		return nil
	}
	l := r.place.admit(mode)
	if l == nil {
		return nil
	}
	r.inUse = true
	if r.idle != nil {
		r.idle.Stop()
	}
	r.count()
	return l
}

// grant lets in who is first in line, and whoever may hold beside him.
func (r *retainer) grant() {
	for len(r.line) > 0 {
		l := r.admit(r.line[0].mode)
		if l == nil {
			return
		}
		r.next(l)
	}
}

// next gives a Lock to who is first in line.
func (r *retainer) next(l *Lock) {
	r.line[0].won <- l
	r.line[0] = nil
	r.line = r.line[1:]
}
