package zkconn

import (
	"errors"
	"time"
)

// Hold is called when a Create has made a node that may hold a lock. It makes
// the lease count from the strong instant, which is never later than the
// sending time of the latest answered write (see keepalive). Config.Duty must
// already return Holding. Hold sends a write only if the answer to the Create
// does not count, because the session went to another connection meanwhile.
func (c *Conn) Hold() error {
	err := c.keepalive.hold()
	if errors.Is(err, errNoWrite) {
		return c.keepalive.proveAndHold(c.write)
	}
	return err
}

// Confirmed reports whether contenders of the session that have waited may act
// as holders now. It sends no request and does not block.
func (c *Conn) Confirmed() bool { return c.keepalive.confirmed() }

// Confirm returns nil when contenders of the session that have waited may act
// as holders. If the latest write is too old, Confirm sends a write. Concurrent
// calls share one write. The caller must hold no mutex that Config.Duty needs.
func (c *Conn) Confirm() error { return c.keepalive.confirm(c.write) }

// ConfirmOrEnd returns when Confirm has succeeded, or the lease has ended.
func (c *Conn) ConfirmOrEnd() {
	for c.Confirm() != nil {
		pause := time.NewTimer(c.keepalive.schedule.timeout / 40)
		select {
		case <-pause.C:
		case <-c.lease.Done():
			pause.Stop()
			return
		}
	}
}
