package zkconn

import (
	"errors"
	"time"
)

// Hold is called when a Create has made a node that may hold a lock. It makes
// the lease count from the strong instant, which is never later than the
// sending time of the latest answered write (see keepalive). Config.Duty must
// already return Holding. Hold sends a write only if the answer to the Create
// does not count because the session has moved to another connection.
func (c *Conn) Hold() error {
	err := c.keepalive.hold()
	if errors.Is(err, errNoWrite) {
		return c.keepalive.proveAndHold(c.write)
	}
	return err
}

// Confirmed reports whether the driver may now tell a waiting contender that
// its wait is over. The contender may then act as a holder, so a recent
// answered write must first confirm that the store keeps the session: see
// keepalive. Confirmed also returns true if no write is needed any more, for
// example because the lease has ended. It sends no request and does not block.
func (c *Conn) Confirmed() bool { return c.keepalive.confirmed() }

// Confirm returns nil once Confirmed does. If the latest answered write is too
// old, it sends a write, which concurrent calls share. The caller must hold no
// mutex that Config.Duty needs.
func (c *Conn) Confirm() error { return c.keepalive.confirm(c.write) }

// DutyChanged is called when Config.Duty may require a heartbeat or a look
// ahead earlier than before. It does not block. It must not be called after the
// Conn has shut down.
func (c *Conn) DutyChanged() { c.keepalive.dutyChanged(c.heartbeat) }

// ConfirmOrEnd waits until Confirm succeeds or the lease has ended.
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
