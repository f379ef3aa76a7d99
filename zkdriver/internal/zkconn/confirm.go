package zkconn

import (
	"errors"
	"time"
)

// Hold must be called when Create has made a node that may hold a lock, before
// its caller learns of it. From then on only answered writes renew the lease,
// so that it cannot outlast the session even on a deposed leader (see
// keepalive). Config.Duty must already return Holding. Hold sends a write only
// if the answer to the Create does not count, because the session has moved to
// another connection.
func (c *Conn) Hold() error {
	err := c.keepalive.hold()
	if errors.Is(err, errNoWrite) {
		return c.keepalive.proveAndHold(c.write)
	}
	return err
}

// Confirmed reports whether a waiting contender may be told that its wait is
// over. The contender may then act as a holder, so a recent write must first
// have proved that the store still keeps the session: see keepalive. Confirmed
// also returns true if no write is needed, for example because the lease has
// ended. It does no I/O and does not block.
func (c *Conn) Confirmed() bool { return c.keepalive.confirmed() }

// Confirm makes Confirmed true, sending a write if the latest one is too old.
// Concurrent calls share that write. The caller must hold no mutex that
// Config.Duty needs.
func (c *Conn) Confirm() error { return c.keepalive.confirm(c.write) }

// DutyChanged must be called when a new result of Config.Duty may require a
// heartbeat or a LookAhead sooner. It does not block. It must not be called
// after the Conn has shut down.
func (c *Conn) DutyChanged() { c.keepalive.dutyChanged(c.heartbeat) }

// ConfirmOrEnd retries Confirm until it succeeds or the lease has ended.
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
