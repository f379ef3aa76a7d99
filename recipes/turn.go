package recipes

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// A turn ends when the last Lock on a place is unlocked. Then the place goes to who is next in
// line, or is kept for a while, or is given up.

// admit returns a Lock on the place, or nil if the mode does not allow one or the
// place is not what it was. A Lock on a place that has none begins a turn, as
// begins reports. On a place that is spent no turn begins.
func (h *hold) admit(mode Mode, spent bool) (l *Lock, begins bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || h.released || h.retainer == nil || h.held[Exclusive] > 0 {
		return nil, false
	}
	stands := modeOf(h.place.Node)
	if mode == Exclusive && (stands == Shared || h.downgraded || h.held[Shared] > 0) {
		return nil, false
	}
	begins = h.held[Shared] == 0
	if begins && spent {
		return nil, false
	}
	l = newLock(h, mode, &turn{since: time.Now()})
	h.held[mode]++
	h.locks = append(h.locks, l)
	return l, begins
}

// retain makes a hold the place of a retainer, unless it is over.
func (h *hold) retain(r *retainer) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || h.released {
		return false
	}
	h.retainer = r
	return true
}

// detach makes a place that only readers hold an ordinary hold, and says whether the
// store has to be told that it is shared.
func (h *hold) detach() (detached, tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || h.held[Shared] == 0 || h.held[Exclusive] > 0 {
		return false, false
	}
	stands := modeOf(h.place.Node)
	tell = stands == Exclusive && !h.downgraded
	h.downgraded = h.downgraded || tell
	h.retainer = nil
	return true, tell
}

// retained returns the retainer whose place the hold is, or nil.
func (h *hold) retained() *retainer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.retainer
}

// gone tells whether the hold is lost or given back, without a look at the session.
func (h *hold) gone() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost != nil || h.released
}

// unused tells whether no Lock is on the place.
func (h *hold) unused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held[Shared]+h.held[Exclusive] == 0
}

// close marks a place that nobody uses as given back. It reports false if that cannot be.
func (h *hold) close() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || h.released || h.held[Shared]+h.held[Exclusive] > 0 {
		return false
	}
	h.released = true
	h.stop()
	return true
}

// endTurn is what Unlock does, with the last Lock on a place. If the place was
// detached meanwhile, readers have entered since, and the last of their Unlocks
// removes the node.
func (l *Lock) endTurn() error {
	r := l.hold.retained()
	if r == nil {
		return nil
	}
	return r.turnEnded(l)
}

func (r *retainer) turnEnded(l *Lock) error {
	h := l.hold
	r.mu.Lock()
	if r.place != h || !r.inUse || !h.unused() {
		r.mu.Unlock()
		return nil // others have come since
	}
	r.inUse = false
	r.grant()
	if r.inUse {
		r.mu.Unlock()
		return nil
	}
	if !r.spent() && len(r.line) == 0 && r.others != waiting && !h.isDowngraded() {
		r.keep()
		r.mu.Unlock()
		return nil
	}
	if !r.giveUpPlace() {
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	defer r.resume() // also if a hook panics
	return l.release()
}

// resume contends for a new place if there are waiters.
func (r *retainer) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pursue()
}

func (h *hold) isDowngraded() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.downgraded
}

// giveUpPlace is called with r.mu held, and followed by hold.giveBack without.
func (r *retainer) giveUpPlace() bool {
	if !r.place.close() {
		return false
	}
	r.drop()
	return true
}

// keep keeps the place for a while, though nobody uses it. It is called with r.mu held.
func (r *retainer) keep() {
	h, d := r.place, r.m.options.retention.Idle
	if r.idle == nil {
		r.idle = time.AfterFunc(d, func() { r.leaveIdle(h) })
	} else {
		r.idle.Reset(d)
	}
}

// leaveIdle gives the place up if nobody uses it.
func (r *retainer) leaveIdle(h *hold) {
	if r.m.client.enter() != nil {
		return // the place goes with the session
	}
	defer r.m.client.leave()
	r.mu.Lock()
	ok := r.place == h && !r.inUse && r.giveUpPlace()
	r.mu.Unlock()
	if !ok {
		return
	}
	_ = h.giveBack()
	r.resume()
}

// lost is called when a hold is lost that is a place.
func (r *retainer) lost(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place == h {
		r.drop()
		r.pursue()
	}
}

// watch begins to look out for others. It is called with r.mu held.
func (r *retainer) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	r.unwatch = cancel
	h := r.place
	r.m.client.spawn(func() {
		defer cancel()
		r.lookOut(ctx, h)
	})
}

// lookOut watches the queue until somebody else waits. What it sees may be late, never early:
// who has been seen to wait may have gone, which costs no more than the place.
func (r *retainer) lookOut(ctx context.Context, h *hold) {
	pace := retries{newBackOff: r.m.options.backOff}
	early := 0 // watches in a row that have closed soon
	for ctx.Err() == nil && h.session.Err() == nil {
		began := time.Now()
		watch, nodes, err := r.look(ctx, h)
		if err != nil {
			sleep(pace.nextTireless(), ctx.Done())
			continue
		}
		pace.succeeded()
		over := r.judge(h, nodes)
		if !over {
			select {
			case <-watch.C:
			case <-ctx.Done():
			}
		}
		watch.Stop()
		if over {
			return
		}
		if early++; time.Since(began) > brief {
			early = 0
		}
		if early > 2 { // a driver may close watches early, again and again
			sleep(time.Millisecond<<min(early-2, 7), ctx.Done())
		}
	}
}

// judge acts on what a look at the queue has shown. It reports whether the
// place is lost or given up.
func (r *retainer) judge(h *hold, nodes []driver.Node) (over bool) {
	place := h.placeNow()
	if indexOf(nodes, place.Node) < 0 && !h.isDowngraded() {
		h.lose(errTaken)()
		return true
	}
	if r.saw(h, othersWait(nodes, place)) {
		r.leaveIdle(h)
		return true
	}
	return false
}

func (r *retainer) look(ctx context.Context, h *hold) (driver.Watch, []driver.Node, error) {
	watch, err := h.session.WatchQueue(ctx, r.m.name)
	if err != nil {
		return driver.Watch{}, nil, err
	}
	nodes, err := h.session.List(ctx, r.m.name)
	if err != nil {
		watch.Stop()
	}
	return watch, nodes, err
}

// othersWait tells whether anybody waits behind the node at that place.
func othersWait(nodes []driver.Node, p driver.Place) bool {
	mine := modeOf(p.Node)
	for i := indexOf(nodes, p.Node) + 1; i < len(nodes); i++ {
		if mine == Exclusive || modeOf(nodes[i]) == Exclusive {
			return true
		}
	}
	return false
}

// saw acts on what a look at the queue has shown. It reports whether there is
// no need to look again, because another process waits.
func (r *retainer) saw(h *hold, wait bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.place != h {
		return wait
	}
	if r.others = waiting; !wait {
		r.others, r.turns = none, 1
	}
	r.grant()
	return wait
}
