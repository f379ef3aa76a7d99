package history

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// learnLimit is how long an undisturbed client may take to notice its missing
// node.
const learnLimit = 10 * time.Second

type possession struct {
	*handle
	fresh   bool      // the grant has not been checked yet
	missing time.Time // when its node disappeared, or zero
	// notDowngraded is when the downgraded lock's node was first seen still
	// exclusive, or zero.
	notDowngraded time.Time
}

type removal struct {
	step int
	at   time.Time
}

type nodelessWaiter struct {
	call  *attempt
	token int64
	at    time.Time
}

// granted runs at once after the grant, when lock and context must be valid.
func (r *run) granted(ctx context.Context, h *handle) {
	r.remark("%v holds it, %v", h, h.lock.Mode())
	if h.number == 0 && h.unlock == nil { // not for Once, which calls its function later
		if err := h.lock.Err(); err != nil {
			r.fail("%v: it was lost when it was granted: %v", h, err)
		}
		if err := ctx.Err(); err != nil {
			r.fail("%v: it was granted after the context had ended: %v", h, err)
		}
	}
	_ = h.lock.Lost() // creates the channel that the checks look at
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[h] = &possession{handle: h, fresh: h.number == 0}
}

// slack is how long a call may clean up or connect after its timeout.
const slack = 110 * time.Millisecond

func (r *run) returned(a *attempt) {
	took, c := a.ended.Sub(a.began), r.processes[a.client.slot]
	if a.limit > 0 && took > a.limit+slack+forOnce(a.unlock) {
		r.fail("%v: returned after %v, with %v to wait", a, took, a.limit)
	}
	switch {
	case errors.Is(a.err, dlock.ErrTimeout):
		if took < a.limit {
			r.fail("%v: timed out after %v of %v: %v", a, took, a.limit, a.err)
		}
		return
	case !errors.Is(a.err, dlock.ErrUnavailable), !a.try:
		return
	}
	// Without a fault, only used-up sequences or a node removed twice may fail
	// a try.
	usedUp := strings.Contains(a.err.Error(), "sequences are used up")
	if !usedUp && !errors.Is(a.err, driver.ErrSessionEnded) && !c.disturbedSince(a.began) && r.removedSince(a.began) < 2 {
		r.fail("%v: not answered, and nothing was lost: %v", a, a.err)
	}
}

func (r *run) downgraded(h *handle) {
	if name, stands := r.stands(h.queue, h.token); stands && r.wrap == nil && isWriter(name) && !r.writes(h.token) {
		r.fail("%v: downgraded, and its node is %s", h, name)
	}
}

// unlockLimit covers the 2 s that Unlock may wait for the store.
const unlockLimit = 2*time.Second + slack

// forOnce returns the extra time that a call of Once may take.
func forOnce(unlock func() error) time.Duration {
	if unlock == nil {
		return 0
	}
	return 30 * time.Second
}

func (r *run) leaving(h *handle) (left func(error)) {
	c, began, last, limit := r.processes[h.client.slot], time.Now(), true, unlockLimit+forOnce(h.unlock)
	_, removed := r.removedAt(h.token)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, h)
	for other := range r.held {
		last = last && other.token != h.token
	}
	return func(err error) {
		r.remark("%v unlocks: %v", h, err)
		if took := time.Since(began); took > limit {
			r.fail("%v: unlock took %v", h, took)
		}
		name, stands := r.stands(h.queue, h.token)
		switch {
		case err != nil:
			r.count("unlock: " + kindOf(err))
		case last && removed && !r.doubtful(h.token) && c.calmSince(began).Equal(began):
			r.fail("%v: Unlock does not report that its node had been removed", h)
		case last && stands:
			r.fail("%v: unlocked, and its node %s is there", h, name)
		}
	}
}

func kindOf(err error) string {
	for _, known := range []error{dlock.ErrClosed, dlock.ErrLost, dlock.ErrUnavailable} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "other"
}

// A holder must notice its loss without calls of Err, so judge makes few.
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
	if r.units() {
		r.judgeUnits(all)
		if r.gate.step%4 == 0 {
			r.judgeServed()
		}
	}
	r.judgeClose()
	r.judgeNodeless()
}

func (r *run) heldBy(c *process) []*possession {
	return slices.DeleteFunc(r.notLost(), func(h *possession) bool { return r.processes[h.client.slot] != c })
}

// judgeClose requires that locks report their loss before the close reaches the
// store.
func (r *run) judgeClose() {
	for _, h := range r.warned {
		if !isClosed(h.lock.Lost()) && !errors.Is(h.lock.Err(), dlock.ErrNotHeld) {
			r.fail("%v: held although its client was closed", h)
		}
	}
	r.warned = nil
}

func (r *run) notLost() []*possession {
	r.mu.Lock()
	var all []*possession
	for _, h := range r.held {
		all = append(all, h)
	}
	r.mu.Unlock()
	all = slices.DeleteFunc(all, func(h *possession) bool { return r.processes[h.client.slot].isPaused() || isClosed(h.lock.Lost()) })
	slices.SortFunc(all, func(a, b *possession) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.number, b.number)) })
	return all
}

func (r *run) removedAt(token int64) (at removal, removed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, removed = r.removed[token]
	return at, removed
}

func (r *run) judgePair(a, b *possession) {
	if a.queue != b.queue || a.contender == b.contender || !a.excludes(b) {
		return
	}
	if _, removed := r.removedAt(a.token); removed {
		return
	}
	if _, removed := r.removedAt(b.token); removed {
		return
	}
	if a.lock.Err() != nil || b.lock.Err() != nil {
		r.count("loss reported by Err alone")
		return
	}
	r.fail("two holders: %v, %v, and %v, %v", a, a.lock.Mode(), b, b.lock.Mode())
}

func (r *run) judgeLoss(h *possession) {
	info, there := r.info(h.queue, h.lock.Node())
	switch {
	case there && info.Token == h.token:
		h.missing = time.Time{}
		r.judgeDowngraded(h)
	case h.missing.IsZero():
		h.missing = time.Now()
	case time.Since(r.processes[h.client.slot].calmSince(h.missing)) > learnLimit:
		r.fail("%v: has not learned that its node is gone", h)
	}
}

// judgeDowngraded fails the run if a downgraded lock's node stays exclusive in
// the store.
func (r *run) judgeDowngraded(h *possession) {
	switch {
	case r.wrap != nil || !strings.Contains(h.lock.Node(), "-W-") || r.writes(h.token):
		h.notDowngraded = time.Time{}
	case h.notDowngraded.IsZero():
		h.notDowngraded = time.Now()
	case time.Since(r.processes[h.client.slot].calmSince(h.notDowngraded)) > learnLimit:
		r.fail("%v: shared, and the store still shows its node", h)
	}
}

func (r *run) writes(token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := range r.held {
		if h.token == token && h.lock.Mode() == dlock.Exclusive {
			return true
		}
	}
	return false
}

func (r *run) judgeGrant(h *possession) {
	token, exclusive := h.token, h.lock.Mode() == dlock.Exclusive
	if at, removed := r.removedAt(h.token); removed {
		switch p := r.passing; {
		case p == nil, h.unlock != nil: // Once may run steps after its grant
		case p.request.Stage == faults.StageReply && p.born >= at.step:
			r.fail("%v: its node had been removed before the store was asked", h)
		case r.releasedAfter(p, at):
			r.fail("%v: its node had been removed before the release", h)
		}
		return
	}
	if token <= r.highest[h.queue] {
		r.fail("%v: granted after a writer's token %d", h, r.highest[h.queue])
	}
	if exclusive {
		r.highest[h.queue] = token
	}
	name, stands := r.stands(h.queue, token)
	if !stands {
		if h.lock.Err() == nil {
			r.fail("%v: granted without a node", h)
		}
		return
	}
	nodes := r.nodes(h.queue)
	i := slices.IndexFunc(nodes, func(n driver.Node) bool { return n.Name == name })
	sum := h.units
	for _, n := range nodes[:i] {
		weight, ok := unitsIn(n)
		if sum += weight; h.units > 0 && ok && sum <= Units {
			continue
		}
		if exclusive || h.units > 0 || isWriter(n.Name) {
			r.fail("%v: granted behind %s", h, n.Name)
		}
	}
}

// releasedAfter reports whether p is a release from after the removal. Package
// faults holds releases back until the watch is armed.
func (r *run) releasedAfter(p *message, at removal) bool {
	return p.request.Stage == faults.StageNews && p.request.Cause == driver.Released &&
		p.born > at.step && r.armed[p.watch()] <= at.step
}

func (r *run) judgeNodeless() {
	for a, s := range r.nodeless {
		if r.record.current(a.id) != s.call {
			delete(r.nodeless, a)
			continue
		}
		if time.Since(r.processes[a.slot.number].calmSince(s.at)) <= learnLimit {
			continue
		}
		if !r.queued(a, s.token) {
			r.fail("%v has waited without a node for %v", a, time.Since(s.at))
		}
		delete(r.nodeless, a)
	}
}

// judgeEmptiness checks that the store is empty and no client sends more.
func (r *run) judgeEmptiness() {
	time.Sleep(time.Minute) // expires sessions whose close was lost
	synctest.Wait()
	if s := r.store.Stats(); !r.any() && s.Nodes+s.Watches+s.Sessions > 0 {
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

func (h *possession) excludes(other *possession) bool {
	if (h.units > 0) != (other.units > 0) {
		return true
	}
	return h.lock.Mode() == dlock.Exclusive || other.lock.Mode() == dlock.Exclusive
}

func (r *run) judgeUnits(all []*possession) {
	held, seen := map[string]int{}, map[*contender]bool{}
	for _, h := range all {
		if _, removed := r.removedAt(h.token); !removed && !seen[h.contender] && h.lock.Err() == nil {
			held[h.queue] += h.units
			seen[h.contender] = true
		}
	}
	for queue, n := range held {
		if n > Units {
			r.fail("%d of %d units of %s are held", n, Units, queue)
		}
	}
}

func unitsIn(n driver.Node) (weight int, ok bool) {
	for _, letter := range []string{"-S", "-H"} {
		if _, rest, found := strings.Cut(n.Name, letter); found {
			return int(rest[0] - '0'), true // always one digit
		}
	}
	return 0, false
}

// judgeServed fails the run if a contender waits longer than learnLimit for
// free units.
func (r *run) judgeServed() {
	free := map[int64]time.Time{}
	for _, queue := range r.queues {
		sum := 0
		for _, n := range r.nodes(queue) {
			weight, ok := unitsIn(n)
			if sum += weight; !ok || sum > Units {
				break
			}
			info, there := r.info(queue, n.Name)
			if !there || r.holds(info.Token) {
				continue
			}
			if call := r.record.current(r.ownerOf(info).id); call == nil || !contendsWith(call, info) {
				continue
			}
			since, seen := r.free[info.Token]
			if !seen {
				since = time.Now()
			}
			free[info.Token] = since
			if time.Since(r.calmSince(since)) > learnLimit {
				r.fail("%v waits as %s for units of %s that are free", r.ownerOf(info), n.Name, queue)
			}
		}
	}
	r.free = free
}

func (r *run) holds(token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := range r.held {
		if h.token == token && !errors.Is(h.lock.Err(), dlock.ErrLost) {
			return true
		}
	}
	return false
}

func (r *run) calmSince(t time.Time) time.Time {
	for _, c := range r.processes {
		t = c.calmSince(t)
	}
	return t
}
