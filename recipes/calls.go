package recipes

import (
	"sync"
	"sync/atomic"
	"time"
)

// calls counts what Close has to wait for: calls in flight and background work. None begins once
// it is closed.
type calls struct {
	state   atomic.Int64 // how many there are, and shut
	emptied sync.Once
	empty   chan struct{} // closes when it is closed and the last one has ended
}

// shut in calls.state says that it is closed.
const shut = 1 << 62

func newCalls() *calls { return &calls{empty: make(chan struct{})} }

// enter reports false if it is closed; otherwise leave has to follow.
func (c *calls) enter() bool {
	if c.state.Add(1) < shut {
		return true
	}
	c.leave()
	return false
}

func (c *calls) leave() {
	if c.state.Add(-1) == shut {
		c.finish()
	}
}

func (c *calls) close() {
	if c.state.Add(shut) == shut {
		c.finish()
	}
}

// finish may be called again by those who find it closed.
func (c *calls) finish() { c.emptied.Do(func() { close(c.empty) }) }

// drained waits for the last one, but not for ever.
func (c *calls) drained(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.empty:
		return true
	case <-t.C:
		return false
	}
}
