package recipes

import (
	"sync"
	"time"
)

// calls counts the calls and the background work that Close has to wait for.
// After close no call begins.
type calls struct {
	mu     sync.Mutex
	active int
	closed bool
	ended  chan struct{} // closed when closed is set and the last call has ended
}

func newCalls() *calls { return &calls{ended: make(chan struct{})} }

// begin reports whether a call may begin. After a true result the caller has to
// call end.
func (c *calls) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active++
	return true
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active--
	if c.closed && c.active == 0 {
		close(c.ended)
	}
}

// close lets no further call begin. It must be called only once.
func (c *calls) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.active == 0 {
		close(c.ended)
	}
}

// await waits for the last call to end, but not longer than limit. It reports
// whether that call has ended.
func (c *calls) await(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-c.ended:
		return true
	case <-t.C:
		return false
	}
}
