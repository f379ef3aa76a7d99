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

// Confirmed reports whether the driver may now tell a waiting contender that
// its wait is over. The contender may act as a holder after that. So a recent
// answered write has to confirm first that the store keeps the session: see
// keepalive. If no write is needed any more, for example because the lease has
// ended, Confirmed returns true as well. Confirmed sends no request and does
// not block.
func (c *Conn) Confirmed() bool { return c.keepalive.confirmed() }

// Confirm returns nil once the driver may tell a waiting contender that its
// wait is over: see Confirmed. If the latest answered write is too old, Confirm
// sends a write. Concurrent calls share one write. The caller must hold no
// mutex that Config.Duty needs.
func (c *Conn) Confirm() error { return c.keepalive.confirm(c.write) }

// DutyChanged is called when Config.Duty may require an earlier heartbeat or
// look ahead than before. It does not block. After the Conn has shut down it must
// not be called.
func (c *Conn) DutyChanged() { c.keepalive.dutyChanged(c.heartbeat) }

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
