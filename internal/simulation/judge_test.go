package simulation

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/recipes"
)

// learnLimit is how long a client may take to notice that its node is gone. The
// time restarts when a fault keeps the client from the store.
const learnLimit = 10 * time.Second

type holding struct {
	lock  *recipes.Lock
	actor *actor
	queue string
	units int  // of a semaphore; zero for a lock
	fresh bool // the grant has not been checked yet

	missing time.Time // when its node disappeared, or zero
	// notDowngraded is when a lock, shared for its holder after a downgrade,
	// was first seen with a node that is still exclusive in the store, or zero.
	notDowngraded time.Time
}

// removal is the time at which an operator removed a node.
type removal struct {
	step int
	at   time.Time
}

// nodelessWaiter is a call that kept waiting after its node was removed.
type nodelessWaiter struct {
	call  int
	token int64
	at    time.Time
}

// granted records a grant. It must be called in the step of the grant, before
// time passes or a session can end.
func (r *run) granted(a *actor, ctx context.Context, queue string, l *recipes.Lock, units int) {
	r.remark("%v holds %s %s, token %d", a, queue, l.Node(), l.Token())
	r.count("grant")
	if units > 0 {
		r.count("units granted")
	}
	if err := l.Err(); err != nil {
		r.fail("%v won %s %s, which was lost when it was granted: %v", a, queue, l.Node(), err)
	}
	if err := ctx.Err(); err != nil {
		r.fail("%v won %s %s after its context had ended: %v", a, queue, l.Node(), err)
	}
	_ = l.Lost() // create the channel now, so that the checks can see it close
	r.hold(&holding{lock: l, actor: a, queue: queue, units: units, fresh: true})
}

// entered records a re-entry.
func (r *run) entered(a *actor, queue string, l *recipes.Lock) {
	r.remark("%v holds %s again, %v", a, queue, l.Mode())
	r.count("re-entry")
	_ = l.Lost()
	r.hold(&holding{lock: l, actor: a, queue: queue})
}

func (r *run) hold(h *holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[h.lock] = h
}

// giving records that an actor is about to unlock. It reports whether no other
// actor holds a Lock with the same node.
func (r *run) giving(l *recipes.Lock) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, l)
	for other := range r.held {
		if other.Token() == l.Token() {
			return false
		}
	}
	return true
}

// judge checks all held locks, except those of paused processes, which cannot
// notice anything. It calls Err only if another actor holds the same lock,
// because a holder must notice its loss even if nobody calls Err.
func (r *run) judge() {
	all := r.notLost()
	for _, h := range all {
		if h.fresh {
			h.fresh = false
			r.judgeGrant(h)
		}
		if r.gate.step%4 == 0 {
			r.judgeLoss(h)
		}
	}
	for i, h := range all {
		for _, other := range all[i+1:] {
			r.judgePair(h, other)
		}
	}
	if r.units() > 0 {
		r.judgeUnits(all)
		if r.gate.step%4 == 0 {
			r.judgeServed()
		}
	}
	r.judgeClose()
	r.judgeNodeless()
}

func (r *run) heldBy(c *client) []*holding {
	return slices.DeleteFunc(r.notLost(), func(h *holding) bool { return h.actor.client != c })
}

// judgeClose fails the run unless all locks of a client that is being closed
// report their loss at once. It must be called before the close reaches the
// store.
func (r *run) judgeClose() {
	for _, h := range r.warned {
		if !isClosed(h.lock.Lost()) && !unlockedBefore(h.lock) {
			r.fail("%v holds %s although its client was closed", h.actor, h.lock.Node())
		}
	}
	r.warned = nil
}

func (r *run) notLost() []*holding {
	r.mu.Lock()
	var all []*holding
	for _, h := range r.held {
		all = append(all, h)
	}
	r.mu.Unlock()
	all = slices.DeleteFunc(all, func(h *holding) bool { return h.actor.client.isPaused() || isClosed(h.lock.Lost()) })
	slices.SortFunc(all, func(a, b *holding) int { return cmp.Compare(a.actor.id, b.actor.id) })
	return all
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (r *run) removedAt(l *recipes.Lock) (at removal, removed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, removed = r.removed[l.Token()]
	return at, removed
}

// judgePair fails the run if two actors hold conflicting locks.
func (r *run) judgePair(a, b *holding) {
	if a.queue != b.queue || a.lock.Token() == b.lock.Token() && a.actor == b.actor {
		return
	}
	if !a.excludes(b) {
		return
	}
	if _, removed := r.removedAt(a.lock); removed {
		return
	}
	if _, removed := r.removedAt(b.lock); removed {
		return
	}
	if a.lock.Err() != nil || b.lock.Err() != nil {
		r.count("loss reported by Err alone")
		return
	}
	r.fail("two holders of %s: %v as %s (%v) and %v as %s (%v)", a.queue,
		a.actor, a.lock.Node(), a.lock.Mode(), b.actor, b.lock.Node(), b.lock.Mode())
}

// judgeLoss fails the run if a holder has not noticed for learnLimit that its
// node is gone.
func (r *run) judgeLoss(h *holding) {
	info, there := r.info(h.queue, h.lock.Node())
	switch {
	case there && info.Token == h.lock.Token():
		h.missing = time.Time{}
		r.judgeDowngraded(h)
	case h.missing.IsZero():
		h.missing = time.Now()
	case time.Since(h.actor.client.calmSince(h.missing)) > learnLimit:
		r.fail("%v has not learned that %s is gone", h.actor, h.lock.Node())
	}
}

// judgeDowngraded fails the run if the node of a downgraded lock stays
// exclusive in the store for longer than learnLimit, so that it keeps out
// readers.
func (r *run) judgeDowngraded(h *holding) {
	switch {
	case r.wrap != nil || !strings.Contains(h.lock.Node(), "-W-") || r.writes(h.lock.Token()):
		h.notDowngraded = time.Time{}
	case h.notDowngraded.IsZero():
		h.notDowngraded = time.Now()
	case time.Since(h.actor.client.calmSince(h.notDowngraded)) > learnLimit:
		r.fail("%v holds a shared lock, and the store still shows %s", h.actor, h.lock.Node())
	}
}

// writes reports whether an actor holds an exclusive lock with the node that
// has this token.
func (r *run) writes(token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.held {
		if l.Token() == token && l.Mode() == recipes.Exclusive {
			return true
		}
	}
	return false
}

// judgeGrant fails the run if a lock was granted too early or out of order. At
// the grant, its node must be in the store, no node may block it, and tokens
// must increase.
func (r *run) judgeGrant(h *holding) {
	token, exclusive := h.lock.Token(), h.lock.Mode() == recipes.Exclusive
	if at, removed := r.removedAt(h.lock); removed {
		switch p := r.passing; {
		case p == nil:
		case p.request.Stage == faults.StageReply && p.born >= at.step:
			r.fail("%v won %s as %s, which had been removed before the store was asked", h.actor, h.queue, h.lock.Node())
		case r.releasedAfter(p, at):
			r.fail("%v won %s as %s, which had been removed before the release", h.actor, h.queue, h.lock.Node())
		}
		return
	}
	if token <= r.highest[h.queue] {
		r.fail("%v won %s with token %d after a writer's %d", h.actor, h.queue, token, r.highest[h.queue])
	}
	if exclusive {
		r.highest[h.queue] = token
	}
	nodes := r.nodes(h.queue)
	name := h.lock.Node()
	if h.units > 0 { // the store may have renamed it since
		name, _ = r.stands(h.queue, token)
	}
	i := slices.IndexFunc(nodes, func(n driver.Node) bool { return n.Name == name })
	if i >= 0 {
		if info, there := r.info(h.queue, name); !there || info.Token != token {
			i = -1
		}
	}
	if i < 0 {
		if h.lock.Err() == nil {
			r.fail("%v holds %s without a node %s", h.actor, h.queue, h.lock.Node())
		}
		return
	}
	sum := h.units
	for _, n := range nodes[:i] {
		weight, ok := unitsIn(n)
		if sum += weight; h.units > 0 && ok && sum <= r.units() {
			continue
		}
		if exclusive || h.units > 0 || isWriter(n.Name) {
			r.fail("%v won %s as %s behind %s", h.actor, h.queue, h.lock.Node(), n.Name)
		}
	}
}

// releasedAfter reports whether p announces a release that the store sent after
// the removal. The time at which p arrives is not enough: package faults delays
// the end of a watch until the reply that set the watch has been delivered, so
// that reply must precede the removal as well.
func (r *run) releasedAfter(p *message, at removal) bool {
	return p.request.Stage == faults.StageNews && p.request.Cause == driver.Released &&
		p.born > at.step && r.armed[p.watch()] <= at.step
}

// judgeNodeless fails the run if an actor has waited without a node for longer
// than learnLimit.
func (r *run) judgeNodeless() {
	for a, s := range r.nodeless {
		if a.call() != s.call {
			delete(r.nodeless, a)
			continue
		}
		if time.Since(a.client.calmSince(s.at)) <= learnLimit {
			continue
		}
		if !r.queued(a, s.token) {
			r.fail("%v has waited without a node for %v", a, time.Since(s.at))
		}
		delete(r.nodeless, a)
	}
}

// judgeEmptiness fails the run if a node, a watch or a session remains in the
// store. Leftover goroutines fail the test anyway, because they keep the
// synctest bubble from ending.
func (r *run) judgeEmptiness() {
	time.Sleep(time.Minute) // so that the store expires sessions whose close was lost
	synctest.Wait()
	if s := r.store.Stats(); !r.failed() && s.Nodes+s.Watches+s.Sessions > 0 {
		r.fail("left in the store: %d nodes, %d watches, %d sessions", s.Nodes, s.Watches, s.Sessions)
	}
	r.judgeHooks()
	step := r.gate.arrived()
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	if r.gate.arrived() != step {
		r.fail("something went on after everything was closed")
	}
}
