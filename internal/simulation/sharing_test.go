package simulation

import (
	"time"

	"github.com/dlock-go/dlock/recipes"
)

// knowsAfter is the longest time in which a client must notice that another
// client waits. It starts anew whenever something keeps the client from the
// store.
const knowsAfter = 4 * time.Second

// want says which lock a call waits for, and in which mode.
type want struct {
	queue string
	mode  recipes.Mode
	since time.Time
}

// judgePeer fails the run if the holder of a shared node keeps out a reader of
// its own client for longer than knowsAfter, so that the reader neither joins
// nor queues.
func (r *run) judgePeer(h *holding) {
	kept := r.keepsPeerOut(h)
	switch {
	case !kept:
		h.blocking = time.Time{}
	case h.blocking.IsZero():
		h.blocking = time.Now()
	case time.Since(h.actor.client.calmSince(h.blocking)) > knowsAfter:
		r.fail("%v holds %s shared and blocks a reader of its client", h.actor, h.lock.Node())
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

// hasAnotherNode reports whether the client of a holder has another node in the
// queue.
func (r *run) hasAnotherNode(h *holding) bool {
	for _, n := range r.nodes(h.queue) {
		info, there := r.info(h.queue, n.Name)
		if there && info.Token != h.lock.Token() && r.ownerOf(info).client == h.actor.client {
			return true
		}
	}
	return false
}

// sharedNode is a node that the actors of a client share.
type sharedNode struct {
	waiter int64     // token of the first other client's node that waits for this one, or 0
	since  time.Time // when that node was first seen
	turns  int       // grants with this node since then, including the current one
}

// turns returns the limit for consecutive grants within a client while another
// client waits.
func (r *run) turns() int { return 1 + int(r.seed/8%3) }

// seeWaiters records whether another client waits for the node of a holder.
func (r *run) seeWaiters(h *holding) {
	p := r.sharedNodes[h.lock.Token()]
	if p == nil {
		return
	}
	waiter := r.waiterBehind(h)
	if waiter == p.waiter {
		return
	}
	*p = sharedNode{waiter: waiter, since: time.Now(), turns: 1}
}

// waiterBehind returns the token of the first other client's node that waits
// for the node of a holder, or 0.
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

// isShared reports whether another actor holds the lock with the same node.
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

// judgeTurns fails the run if the actors of a client exceed their turns,
// provided that their client has had the time to notice that another one waits.
func (r *run) judgeTurns(h *holding) {
	p := r.sharedNodes[h.lock.Token()]
	if p == nil {
		r.sharedNodes[h.lock.Token()] = &sharedNode{turns: 1}
		return
	}
	if h.joined || r.isShared(h) {
		// Joining readers on the same node begins no turn.
		return
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
