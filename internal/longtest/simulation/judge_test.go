package simulation

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// toldAfter is how long it may take a client that nothing keeps from the store to learn that a node
// of its is gone.
const toldAfter = 10 * time.Second

// holding is a lock that an actor believes to hold.
type holding struct {
	lock  *recipes.Lock
	actor *actor
	queue string
	fresh bool // not judged yet

	joined bool // another actor was on its node when the lock was granted

	missing time.Time // since when its node is; zero if it is there
	untold  time.Time // since when the store takes it for exclusive although it is shared; zero if it does not
	keeping time.Time // since when it keeps a reader of its own client out; zero if it does not
}

// removal is when an operator removed a node.
type removal struct {
	step int
	at   time.Time
}

// stray is a call that waits although its node was removed.
type stray struct {
	call  int
	token int64
	at    time.Time
}

// granted takes down that an actor has won a lock. It is called in the step in which that
// happened, in which no time passes and no session ends.
func (r *run) granted(a *actor, ctx context.Context, queue string, l *recipes.Lock) {
	r.remark("%v holds %s %s, token %d", a, queue, l.Node(), l.Token())
	r.count("grant")
	if err := l.Err(); err != nil {
		r.fail("%v won %s %s, which was lost when it was granted: %v", a, queue, l.Node(), err)
	}
	if err := ctx.Err(); err != nil {
		r.fail("%v won %s %s after its context had ended: %v", a, queue, l.Node(), err)
	}
	_ = l.Lost() // makes the channel
	h := &holding{lock: l, actor: a, queue: queue, fresh: true}
	h.joined = r.isShared(h)
	r.hold(h)
}

// entered takes down that an actor has entered again.
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

// giving takes down that an actor is about to unlock, and tells whether it is his last Lock of that
// node.
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

// judge looks at everybody who believes to hold a lock. It leaves paused processes alone: they
// look at nothing. It asks for Err, which has a lock look at the clocks, only where somebody else
// has the lock too; whoever is alone has to learn of a loss by himself.
func (r *run) judge() {
	all := r.believers()
	for _, h := range all {
		if h.fresh {
			h.fresh = false
			r.judgeGrant(h)
			if r.retains() {
				r.judgeTurns(h)
			}
		}
		if r.gate.step%4 == 0 {
			r.judgeTold(h)
			if r.retains() {
				r.seeWaiters(h)
				r.judgePeer(h)
			}
		}
	}
	for i, h := range all {
		for _, other := range all[i+1:] {
			r.judgePair(h, other)
		}
	}
	r.judgeClose()
	r.judgeStrays()
}

// heldBy returns the locks that the actors of a client hold.
func (r *run) heldBy(c *client) []*holding {
	return slices.DeleteFunc(r.believers(), func(h *holding) bool { return h.actor.client != c })
}

// judgeClose fails the run if a client that is closed has not told its locks first: nothing has
// passed the gate yet.
func (r *run) judgeClose() {
	for _, h := range r.warned {
		if !isClosed(h.lock.Lost()) && !givenBack(h.lock) {
			r.fail("%v holds %s although its client was closed", h.actor, h.lock.Node())
		}
	}
	r.warned = nil
}

// believers returns the locks that are held and not known to be lost.
func (r *run) believers() []*holding {
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

// judgePair fails the run if two hold a lock that may not hold it together.
func (r *run) judgePair(a, b *holding) {
	if a.queue != b.queue || a.lock.Token() == b.lock.Token() && a.actor == b.actor {
		return
	}
	if a.lock.Mode() == recipes.Shared && b.lock.Mode() == recipes.Shared {
		return
	}
	if _, removed := r.removedAt(a.lock); removed {
		return
	}
	if _, removed := r.removedAt(b.lock); removed {
		return
	}
	if a.lock.Err() != nil || b.lock.Err() != nil {
		r.count("told by Err alone")
		return
	}
	r.fail("two holders of %s: %v as %s (%v) and %v as %s (%v)", a.queue,
		a.actor, a.lock.Node(), a.lock.Mode(), b.actor, b.lock.Node(), b.lock.Mode())
}

// judgeTold fails the run if a holder has not learnt for long that his node is gone: because an
// operator has removed it, or because the session has ended.
func (r *run) judgeTold(h *holding) {
	info, there := r.info(h.queue, h.lock.Node())
	switch {
	case there && info.Token == h.lock.Token():
		h.missing = time.Time{}
		r.judgeDowngraded(h)
	case h.missing.IsZero():
		h.missing = time.Now()
	case time.Since(h.actor.client.calmSince(h.missing)) > toldAfter:
		r.fail("%v was not told that %s is gone", h.actor, h.lock.Node())
	}
}

// judgeDowngraded fails the run if a holder has held for long as a reader what still stands as a
// writer's in the store: so that readers wait for nothing. A retained node may stand so
// while no other client waits.
func (r *run) judgeDowngraded(h *holding) {
	switch {
	case r.wrap != nil || !strings.Contains(h.lock.Node(), "-W-") || r.writes(h.lock.Token()),
		r.retains() && r.waiterBehind(h) == 0:
		h.untold = time.Time{}
	case h.untold.IsZero():
		h.untold = time.Now()
	case time.Since(h.actor.client.calmSince(h.untold)) > toldAfter:
		r.fail("%v reads, and the store was not told: %s", h.actor, h.lock.Node())
	}
}

// writes tells whether anybody holds the node of that token exclusively.
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

// judgeGrant fails the run if the store shows somebody in the way of a lock that was just won,
// or no node of the holder, or if the tokens do not rise.
func (r *run) judgeGrant(h *holding) {
	token, exclusive := h.lock.Token(), h.lock.Mode() == recipes.Exclusive
	if at, removed := r.removedAt(h.lock); removed {
		switch p := r.passing; {
		case p == nil || r.retains():
		case p.request.Stage == faults.StageReply && p.born >= at.step:
			r.fail("%v won %s as %s, which had been removed before the store was asked", h.actor, h.queue, h.lock.Node())
		case p.request.Stage == faults.StageNews && p.request.Cause == driver.Released && p.born > at.step:
			r.fail("%v won %s as %s, which had been removed before the release", h.actor, h.queue, h.lock.Node())
		}
		return
	}
	if token < r.highest[h.queue] || token == r.highest[h.queue] && !r.retains() {
		r.fail("%v won %s with token %d after a writer's %d", h.actor, h.queue, token, r.highest[h.queue])
	}
	if exclusive {
		r.highest[h.queue] = token
	}
	nodes := r.nodes(h.queue)
	name := h.lock.Node()
	if r.retains() { // a reader may enter while the node's new name is on its way
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
	for _, n := range nodes[:i] {
		if exclusive || isWriter(n.Name) {
			r.fail("%v won %s as %s behind %s", h.actor, h.queue, h.lock.Node(), n.Name)
		}
	}
}

// judgeStrays fails the run if somebody has waited for long without a node.
func (r *run) judgeStrays() {
	for a, s := range r.strays {
		if a.call() != s.call {
			delete(r.strays, a)
			continue
		}
		if time.Since(a.client.calmSince(s.at)) <= toldAfter {
			continue
		}
		if !r.queued(a, s.token) {
			r.fail("%v has waited without a node for %v", a, time.Since(s.at))
		}
		delete(r.strays, a)
	}
}

// judgeEmptiness fails the run if something is left. Goroutines that are left keep the bubble from
// ending, which fails the test.
func (r *run) judgeEmptiness() {
	time.Sleep(time.Minute) // the store drops sessions that could not say goodbye
	synctest.Wait()
	if s := r.store.Stats(); !r.failed() && s.Nodes+s.Watches+s.Sessions > 0 {
		r.fail("left in the store: %d nodes, %d watches, %d sessions", s.Nodes, s.Watches, s.Sessions)
	}
	step := r.gate.arrived()
	time.Sleep(24 * time.Hour)
	synctest.Wait()
	if r.gate.arrived() != step {
		r.fail("something went on after everything was closed")
	}
}
