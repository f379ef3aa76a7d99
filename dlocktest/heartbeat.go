package dlocktest

import (
	"time"

	"github.com/dlock-go/dlock/driver"
)

// heartbeats checks the lease that the driver reports at a session's first
// heartbeat, if it reports any.
func heartbeats(c *check) {
	type heartbeat struct{ left, term time.Duration }
	s, first := c.session(), make(chan heartbeat, 1)
	if !driver.Inspect(s).OnHeartbeat(func(left, term time.Duration) {
		select {
		case first <- heartbeat{left, term}:
		default:
		}
	}) {
		return
	}
	c.create(s, "q", writer)
	timeout := c.config.sessionTimeout()
	select {
	case h := <-first:
		// Less than the full term is left, because the lease counts from the
		// time when the heartbeat was sent.
		if h.left <= 0 || h.left >= h.term || h.term >= timeout {
			c.errorf("a heartbeat reported %v left of a term of %v, expected more than zero, less than the term, and a term below the session timeout of %v",
				h.left, h.term, timeout)
		}
	case <-s.Done():
		c.wantAlive(s, "creating a node")
	case <-time.After(timeout):
		c.errorf("OnHeartbeat returned true, and no heartbeat was reported for %v", timeout)
	}
}
