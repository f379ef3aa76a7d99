package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// granted takes down that an actor has won a lock.
func (r *run) granted(a *actor, queue string, l *recipes.Lock) {
	r.note("%v holds %s %s, token %d", a, queue, l.Name(), l.Token())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[l] = &holding{l, a, queue, true}
}

// entered takes down that an actor has entered again.
func (r *run) entered(a *actor, queue string, l *recipes.Lock) {
	r.note("%v holds %s again, %v", a, queue, l.Mode())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[l] = &holding{l, a, queue, false}
}

// giving takes down that an actor is about to unlock.
func (r *run) giving(l *recipes.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.held[l]; h != nil {
		delete(r.held, l)
	}
}

// judge looks at everybody who believes to hold a lock, that is, whose Err is nil.
func (r *run) judge() {
	r.mu.Lock()
	var all []*holding
	for _, h := range r.held {
		all = append(all, h)
	}
	r.mu.Unlock()
	slices.SortFunc(all, func(a, b *holding) int { return a.actor.id - b.actor.id })
	all = slices.DeleteFunc(all, func(h *holding) bool { return h.lock.Err() != nil })
	for _, h := range all {
		if h.fresh {
			h.fresh = false
			r.judgeGrant(h)
		}
		r.judgeTold(h)
	}
	for i, h := range all {
		for _, other := range all[i+1:] {
			r.judgePair(h, other)
		}
	}
}

func (r *run) removed(h *holding) (since time.Time, removed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since, removed = r.exempt[h.lock.Token()]
	return since, removed
}

// judgePair fails the run if two hold a lock that may not hold it together.
func (r *run) judgePair(a, b *holding) {
	if a.queue != b.queue || a.lock.Token() == b.lock.Token() {
		return
	}
	if a.lock.Mode() == recipes.Shared && b.lock.Mode() == recipes.Shared {
		return
	}
	if _, removed := r.removed(a); removed {
		return
	}
	if _, removed := r.removed(b); removed {
		return
	}
	r.fail("two holders of %s: %v as %s (%v) and %v as %s (%v)", a.queue,
		a.actor, a.lock.Name(), a.lock.Mode(), b.actor, b.lock.Name(), b.lock.Mode())
}

// judgeTold fails the run if a holder has not learnt for long that his node was removed.
func (r *run) judgeTold(h *holding) {
	if since, removed := r.removed(h); removed && time.Since(since) > toldAfter {
		r.fail("%v was not told that %s was removed", h.actor, h.lock.Name())
	}
}

// judgeGrant fails the run if the store shows somebody in the way of a lock that was just won,
// or no node of the holder, or if the tokens do not rise.
func (r *run) judgeGrant(h *holding) {
	if _, removed := r.removed(h); removed {
		return
	}
	token, exclusive := h.lock.Token(), h.lock.Mode() == recipes.Exclusive
	if exclusive && token <= r.highest[h.queue] {
		r.fail("%v won %s with token %d after %d", h.actor, h.queue, token, r.highest[h.queue])
	}
	if exclusive {
		r.highest[h.queue] = token
	} else if token < r.highest[h.queue] {
		r.fail("%v reads %s with token %d after a writer's %d", h.actor, h.queue, token, r.highest[h.queue])
	}
	nodes := r.nodes(h.queue)
	i := slices.IndexFunc(nodes, func(n driver.Node) bool { return r.gate.token(h.queue, n) == token })
	if i < 0 {
		r.fail("%v holds %s without a node %s", h.actor, h.queue, h.lock.Name())
		return
	}
	for _, n := range nodes[:i] {
		if exclusive || !strings.Contains(n.Name, "-R-") {
			r.fail("%v won %s as %s behind %s", h.actor, h.queue, h.lock.Name(), n.Name)
		}
	}
}
