package simulation

import (
	"time"

	"github.com/dlock-go/dlock/recipes"
)

// knowsAfter is how long a client may take to notice that another client waits.
// The time restarts when a fault keeps the client from the store.
const knowsAfter = 4 * time.Second

// want describes the lock that a call waits for.
type want struct {
	queue string
	mode  recipes.Mode
	since time.Time
}

// judgePeer fails the run if a reader is blocked for too long by a node of its
// own client. Within knowsAfter it must either join that node or queue with its
// own.
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

func (r *run) hasAnotherNode(h *holding) bool {
	for _, n := range r.nodes(h.queue) {
		info, there := r.info(h.queue, n.Name)
		if there && info.Token != h.lock.Token() && r.ownerOf(info).client == h.actor.client {
			return true
		}
	}
	return false
}

// sharedNode tracks the use of a node that several actors of a client share.
type sharedNode struct {
	waiter int64     // token of the first waiting node of another client, or 0
	since  time.Time // when that node was first seen
	turns  int       // grants with the shared node since then, including the current one
}

func (r *run) turns() int { return 1 + int(r.seed/8%3) }

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

// waiterBehind returns the token of the first node that waits for the holder's
// node and belongs to another client, or 0 if there is none.
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

// judgeTurns fails the run if a client passes the lock on among its own actors
// too often while another client waits. The client gets some time to notice the
// waiter.
func (r *run) judgeTurns(h *holding) {
	p := r.sharedNodes[h.lock.Token()]
	if p == nil {
		r.sharedNodes[h.lock.Token()] = &sharedNode{turns: 1}
		return
	}
	if h.joined || r.isShared(h) {
		// A reader that joins other readers on the same node does not count as
		// a turn.
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
