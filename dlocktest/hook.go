package dlocktest

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// The methods in this file inject faults through the hooks of Config.

func (c *check) connector() driver.Connector {
	c.exitIfAbandoned()
	c.making.Lock()
	defer c.making.Unlock()
	if c.store == nil {
		c.runHook("New", func() { c.store = c.config.New(c.t) })
	}
	if c.store == nil {
		c.fatalf("Config.New returned nil")
	}
	return c.store
}

func (c *check) nearRollOver() (store driver.Connector) {
	c.runHook("NewNearRollOver", func() { store = c.config.NewNearRollOver(c.t) })
	return store
}

// runHook calls a Config hook and records if it fails. Calls are serialized. If
// the hook calls t.Fatal, the calling goroutine exits.
func (c *check) runHook(hook string, f func()) {
	c.exitIfAbandoned()
	c.hooks.Lock()
	defer c.hooks.Unlock()
	c.watchHook(hook, f)
}

// watchHook is like runHook, but also runs in an abandoned attempt. It is for
// cleanup, such as reconnecting a session that was cut off.
func (c *check) watchHook(hook string, f func()) {
	failed := c.t.Failed()
	returned := false
	defer func() {
		if !returned || !failed && c.t.Failed() {
			c.hookFailed(hook)
		}
	}()
	f()
	returned = true
}

func (c *check) hookOnce(hook string, f func()) func() {
	var once sync.Once
	return func() { once.Do(func() { c.watchHook(hook, f) }) }
}

// fault calls a hook that may end the session.
func (c *check) fault(hook string, s session, f func()) {
	c.expectEnd(s)
	c.runHook(hook, f)
}

func (c *check) expire(s session) {
	p, err := tryCreate(c.ctx, s, probeQueue, writer)
	c.fault("Drop", s, func() { c.config.Drop(c.t, s) })
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drops[s] = p.Node
	}
}

func (c *check) cutOff(s session) (heal func()) {
	c.fault("CutOff", s, func() { heal = c.config.CutOff(c.t, s) })
	if heal == nil {
		c.hookFailed("CutOff")
		c.fatalf("Config.CutOff returned no function to heal")
	}
	healOnce := c.hookOnce("CutOff", heal)
	heal = func() {
		c.mu.Lock()
		delete(c.cuts, s)
		c.mu.Unlock()
		healOnce()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts[s] = true
	c.heals = append(c.heals, heal)
	return heal
}

func (c *check) reset(s session) { c.fault("Reset", s, func() { c.config.Reset(c.t, s) }) }

func (c *check) silenceNotices(s session) {
	c.runHook("SilenceNotices", func() { c.config.SilenceNotices(c.t, s) })
}

func (c *check) lose(s session, op faults.Op, committed bool) {
	if committed {
		c.fault("LoseReply", s, func() { c.config.LoseReply(c.t, s, op) })
	} else {
		c.fault("LoseRequest", s, func() { c.config.LoseRequest(c.t, s, op) })
	}
}

func (c *check) holdRequest(s session, op faults.Op) (arrive func()) {
	c.fault("HoldRequest", s, func() { arrive = c.config.HoldRequest(c.t, s, op) })
	if arrive == nil {
		c.hookFailed("HoldRequest")
		c.fatalf("Config.HoldRequest returned no function")
	}
	return c.hookOnce("HoldRequest", arrive)
}

func (c *check) delayReplies(s session, d time.Duration) {
	c.fault("DelayReplies", s, func() { c.config.DelayReplies(c.t, s, d) })
}

func (c *check) pause(s session, d time.Duration) {
	c.fault("Pause", s, func() { c.config.Pause(c.t, s, d) })
}

func (c *check) removeQueue(queue string) {
	store := c.connector()
	c.runHook("RemoveQueue", func() { c.config.RemoveQueue(c.t, store, queue) })
}

func (c *check) removeNode(queue, name string) {
	store := c.connector()
	c.runHook("RemoveNode", func() { c.config.RemoveNode(c.t, store, queue, name) })
}

func (c *check) putNode(queue, name, data string) {
	store := c.connector()
	c.runHook("PutNode", func() { c.config.PutNode(c.t, store, queue, name, []byte(data)) })
}
