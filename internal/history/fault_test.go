package history

import (
	"time"

	"github.com/dlock-go/dlock/driver"
)

func (r *run) fault() {
	c := r.processes[r.rand.IntN(len(r.processes))]
	queue := r.queues[r.rand.IntN(len(r.queues))]
	switch r.rand.IntN(10) {
	case 0:
		r.expire(c)
	case 1, 2:
		r.cut(c)
	case 3, 4:
		r.pause(c)
	case 5, 6:
		r.removeNode(queue)
	case 7, 8:
		r.removeQueue(queue)
	case 9:
		r.closeClient(c)
	}
}

func (r *run) expire(c *process) {
	s, _ := c.liveSession()
	if s == nil {
		return
	}
	r.note("c%d expires", c.number)
	r.count("session expired")
	c.disturb(time.Now())
	c.store.Faults().Expire(s)
}

// cut blocks a session's requests, replies or both, possibly beyond the session
// timeout.
func (r *run) cut(c *process) {
	s, number := c.liveSession()
	if s == nil || c.isCut(number) {
		return
	}
	kinds := []cut{{true, true}, {true, true}, {requests: true}, {replies: true}}
	kind, d := kinds[r.rand.IntN(len(kinds))], r.span(20*time.Second)
	mend := func() {}
	if kind.requests && kind.replies || r.rand.IntN(2) == 0 {
		mend = c.store.Faults().CutOff(s)
	}
	r.note("c%d.%d is cut off for %v: %+v", c.number, number, d, kind)
	r.count("cut off")
	c.setCut(number, kind)
	heal := func() {
		c.heal(number)
		mend()
	}
	r.heals = append(r.heals, heal)
	time.AfterFunc(d, heal)
}

// pause simulates a suspended process. Its timers and messages wait while other
// processes take steps.
func (r *run) pause(c *process) {
	s, number := c.liveSession()
	if s == nil || r.resume > 0 {
		return
	}
	d := time.Duration(r.rand.IntN(15_000)) * time.Millisecond
	r.note("c%d.%d is paused for %v", c.number, number, d)
	r.count("process paused")
	c.setPaused(true)
	r.resume = r.gate.step + 1 + r.rand.IntN(60)
	c.store.Faults().Pause(s, d)
}

func (r *run) wakeUp() {
	for _, c := range r.processes {
		if c.setPaused(false) {
			r.note("c%d goes on", c.number)
			c.disturb(time.Now())
		}
	}
	r.resume = 0
}

// A repeatable run closes no client that has messages in flight, to avoid a
// race.
func (r *run) closeClient(c *process) {
	if c.isPaused() || r.sharing() == 1 && r.gate.has(c) {
		return
	}
	r.note("c%d closes", c.number)
	r.count("client closed")
	r.warned = r.heldBy(c)
	old := c.slot.renew()
	r.closing.Go(func() { _ = r.record.close(old) })
}

func (r *run) healAll() {
	for _, heal := range r.heals {
		heal()
	}
}

func (r *run) removeNode(queue string) {
	nodes := r.nodes(queue)
	if len(nodes) == 0 {
		return
	}
	n := nodes[r.rand.IntN(len(nodes))]
	r.note("an operator removes %s %s", queue, n.Name)
	r.excuse(queue, n)
	r.record.cause(cause{what: "node removed", slot: -1, queue: queue, node: nodeOf(n.Name)}, done(func() { r.store.Faults().RemoveNode(queue, n.Name) }))
}

func (r *run) removeQueue(queue string) {
	r.note("an operator removes %s", queue)
	r.count("queue removed")
	var last int64
	for _, n := range r.nodes(queue) {
		last = r.excuse(queue, n)
	}
	r.record.cause(cause{what: "queue removed", slot: -1, queue: queue, upTo: last}, done(func() { r.store.Faults().RemoveQueue(queue) }))
}

// excuse gives the owner of a removed node time to notice. It returns the
// token.
func (r *run) excuse(queue string, n driver.Node) (token int64) {
	info, _ := r.info(queue, n.Name)
	r.mu.Lock()
	r.removed[info.Token] = removal{r.gate.step, time.Now()}
	r.mu.Unlock()
	owner := r.ownerOf(info)
	r.count("node removed")
	if call := r.record.current(owner.id); call != nil && contendsWith(call, info) {
		r.count("node of a waiter removed")
		r.nodeless[owner] = nodelessWaiter{call, info.Token, time.Now()}
	}
	return info.Token
}

func (r *run) removedSince(t time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, removed := range r.removed {
		if !removed.at.Before(t) {
			n++
		}
	}
	return n
}

func (r *run) queued(a *actor, token int64) bool {
	for _, queue := range r.queues {
		for _, n := range r.nodes(queue) {
			if info, there := r.info(queue, n.Name); there && info.Token > token && r.ownerOf(info) == a {
				return true
			}
		}
	}
	return false
}
