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
	others  others   // whether another process waits for it
	turns   int      // begun on it; only the present one while no other process waits
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
	rs := &r.m.client.retainers
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
	r.place, r.inUse, r.others, r.turns = h, true, unknown, 1
	r.watch()
	return true
}

// drop forgets the place: it is given up, detached or lost.
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

// spent reports whether the process has had its turns on the place. Until the
// first look at the queue is answered, no other process is taken to wait: for
// Retention.Idle at most.
func (r *retainer) spent() bool {
	retention := r.m.options.retention
	if r.others == none || r.others == unknown && time.Since(r.place.since) < retention.Idle {
		return false
	}
	return r.turns >= retention.Turns
}

// admit returns a Lock on the place, or nil if a caller that wants that mode
// has to wait. A reader that joins readers begins no turn.
func (r *retainer) admit(mode Mode) *Lock {
	if r.place == nil {
		return nil
	}
	l, begins := r.place.admit(mode, r.spent())
	if l == nil {
		return nil
	}
	if begins && r.others != none {
		r.turns++
	}
	r.inUse = true
	if r.idle != nil {
		r.idle.Stop()
	}
	return l
}

// grant lets in the first waiter and those behind it that may hold beside it.
func (r *retainer) grant() {
	for len(r.line) > 0 {
		l := r.admit(r.line[0].mode)
		if l == nil {
			break
		}
		r.next(l)
	}
	r.giveWay()
}

// giveWay detaches a place that only readers hold if another process waits. It
// is called after each admit.
func (r *retainer) giveWay() {
	if r.others == waiting {
		r.detach()
	}
}

// detach gives up a place that only readers hold, without waiting for them: no further
// turn begins on it, the store is told that it is shared, and the last of their Unlocks
// removes the node. The waiters contend for another place.
func (r *retainer) detach() {
	h := r.place
	if h == nil {
		return
	}
	detached, tell := h.detach()
	if !detached {
		return
	}
	r.drop()
	r.pursue()
	if tell {
		r.m.client.spawn(func() { _ = h.downgradeInTime() }) // the reaper goes on after an error
	}
}

// becameShared lets in the readers that wait for a place which is held shared now.
func (r *retainer) becameShared(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place == h {
		r.grant()
	}
}

// next gives a Lock to who is first in line.
func (r *retainer) next(l *Lock) {
	r.line[0].won <- l
	r.line[0] = nil
	r.line = r.line[1:]
}
