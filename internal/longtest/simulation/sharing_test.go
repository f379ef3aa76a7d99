package simulation

import (
	"time"

	"github.com/dlock-go/dlock/recipes"
)

// knowsAfter is how long it may take a client that nothing keeps from the store
// to learn that another one waits.
const knowsAfter = 4 * time.Second

// want is what a call waits for.
type want struct {
	queue string
	mode  recipes.Mode
	since time.Time
}

// judgePeer fails the run if the holder of a shared place keeps a reader of its
// own client out for long: that reader is neither let in nor has it a node in
// the queue.
func (r *run) judgePeer(h *holding) {
	kept := r.keepsPeerOut(h)
	switch {
	case !kept:
		h.keeping = time.Time{}
	case h.keeping.IsZero():
		h.keeping = time.Now()
	case time.Since(h.actor.client.calmSince(h.keeping)) > knowsAfter:
		r.fail("%v reads %s, and keeps a reader of its client out", h.actor, h.lock.Node())
	}
}

func (r *run) keepsPeerOut(h *holding) bool {
	if r.writes(h.lock.Token()) || r.hasAnotherNode(h) {
		return false
	}
	for _, a := range r.actors {
		w, calling := a.wanted()
		if calling && a.client == h.actor.client && w.queue == h.queue && w.mode == recipes.Shared {
			return true
		}
	}
	return false
}

// hasAnotherNode reports whether the client of a holder has another node in the queue.
func (r *run) hasAnotherNode(h *holding) bool {
	for _, n := range r.nodes(h.queue) {
		info, there := r.info(h.queue, n.Name)
		if there && info.Token != h.lock.Token() && r.ownerOf(info).client == h.actor.client {
			return true
		}
	}
	return false
}

// tenancy is a place in the queue that the actors of a client share.
type tenancy struct {
	waiter int64     // the token of the node behind it, of another client; 0 if there is none
	since  time.Time // since when that node stands
	turns  int       // since then, the present one included
}

// turns is how many turns a client may take in a row while another one waits.
func (r *run) turns() int { return 1 + int(r.seed/8%3) }

// seeWaiters records whether another client waits for the place of a holder.
func (r *run) seeWaiters(h *holding) {
	p := r.places[h.lock.Token()]
	if p == nil {
		return
	}
	waiter := r.waiterBehind(h)
	if waiter == p.waiter {
		return
	}
	*p = tenancy{waiter: waiter, since: time.Now(), turns: 1}
}

// waiterBehind returns the token of the first node of another client that waits for the
// node of a holder, or 0.
func (r *run) waiterBehind(h *holding) int64 {
	behind, exclusive := false, false
	for _, n := range r.nodes(h.queue) {
		info, there := r.info(h.queue, n.Name)
		switch {
		case !there:
		case info.Token == h.lock.Token():
			behind, exclusive = true, isWriter(n.Name)
		case behind && (exclusive || isWriter(n.Name)) && r.ownerOf(info).client != h.actor.client:
			return info.Token
		}
	}
	return 0
}

// isShared reports whether another actor holds the place of a holder, too.
func (r *run) isShared(h *holding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l, other := range r.held {
		if l.Token() == h.lock.Token() && other.actor != h.actor {
			return true
		}
	}
	return false
}

// judgeTurns fails the run if the actors of a client pass a lock on among
// themselves more often than they may, although another client has waited for
// so long that theirs knows.
func (r *run) judgeTurns(h *holding) {
	p := r.places[h.lock.Token()]
	if p == nil {
		r.places[h.lock.Token()] = &tenancy{turns: 1}
		return
	}
	if h.joined || r.isShared(h) {
		return // it has joined readers, perhaps after a downgrade
	}
	if p.waiter == 0 || time.Since(h.actor.client.calmSince(p.since)) <= knowsAfter {
		p.turns = 1
		return
	}
	r.count("turn while another client waits")
	if p.turns++; p.turns > r.turns() {
		r.fail("%v has turn %d of %d on %s, and another client has waited for %v",
			h.actor, p.turns, r.turns(), h.lock.Node(), time.Since(p.since))
	}
}
