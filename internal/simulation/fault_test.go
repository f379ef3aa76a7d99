package simulation

import "time"

func (r *run) fault() {
	c := r.clients[r.rand.IntN(len(r.clients))]
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

func (r *run) expire(c *client) {
	s, _ := c.liveSession()
	if s == nil {
		return
	}
	r.note("c%d expires", c.number)
	r.count("session expired")
	c.disturb(time.Now())
	r.store.Faults().Expire(s)
}

// cut disconnects a session for a while, possibly for longer than the session
// timeout. It blocks one direction or both, with or without the heartbeats.
func (r *run) cut(c *client) {
	s, number := c.liveSession()
	if s == nil || c.isCut(number) {
		return
	}
	kinds := []cut{{true, true}, {true, true}, {requests: true}, {replies: true}}
	kind, d := kinds[r.rand.IntN(len(kinds))], r.span(20*time.Second)
	mend := func() {}
	if kind.requests && kind.replies || r.rand.IntN(2) == 0 {
		mend = r.store.Faults().CutOff(s)
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

// pause simulates a suspended process, possibly until after its lease has
// ended. When pause returns, the process's clocks have advanced. Its timers
// fire and its messages arrive only after other processes have taken some
// steps.
func (r *run) pause(c *client) {
	s, number := c.liveSession()
	if s == nil || r.resume > 0 {
		return
	}
	d := time.Duration(r.rand.IntN(15_000)) * time.Millisecond
	r.note("c%d.%d is paused for %v", c.number, number, d)
	r.count("process paused")
	c.setPaused(true)
	r.resume = r.gate.step + 1 + r.rand.IntN(60)
	r.store.Faults().Pause(s, d)
}

func (r *run) wakeUp() {
	for _, c := range r.clients {
		if c.setPaused(false) {
			r.note("c%d goes on", c.number)
			c.disturb(time.Now())
		}
	}
	r.resume = 0
}

// closeClient closes a client while its actors use it, and gives them a new
// one. Repeatable runs do so only if no messages are in flight, because the
// seed does not decide whether those arrive before the close.
func (r *run) closeClient(c *client) {
	if c.isPaused() || r.sharing() == 1 && r.gate.has(c) {
		return
	}
	r.note("c%d closes", c.number)
	r.count("client closed")
	r.mu.Lock()
	r.closers[c] = true
	r.mu.Unlock()
	r.warned = r.heldBy(c)
	old := c.replace()
	r.closing.Go(func() { _ = old.Close() })
}

func (r *run) hasClosed(c *client) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closers[c]
}

func (r *run) healAll() {
	for _, heal := range r.heals {
		heal()
	}
}
