package zkconn

import (
	"errors"
	"time"
)

// Hold makes the lease count for a session that comes to have a node which may
// hold a lock. Config.Duty must return Holding by then. The lease then counts
// from the strong instant (see keepalive). Hold sends a write only if the
// answer to the Create does not count, because the session went to another
// connection meanwhile.
func (c *Conn) Hold() error {
	err := c.keepalive.hold()
	if errors.Is(err, errNoWrite) {
		return c.keepalive.proveAndHold(c.write)
	}
	return err
}

// Confirmed reports whether contenders of the session that have waited may act
// as holders now. It sends nothing and does not block.
func (c *Conn) Confirmed() bool { return c.keepalive.confirmed() }

// Confirm returns nil when contenders of the session that have waited may act
// as holders. It sends a write if the latest one is too old; concurrent calls
// share one. The caller must hold no mutex that Config.Duty needs.
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
