package zkconn

import (
	"errors"
	"time"
)

// Hold must be called after Create has made a node that may hold a lock, before
// the caller of Create learns of the node. From then on only answered writes
// renew the lease, so that the lease cannot outlast the session even on a
// deposed leader (see keepalive). Config.Duty must already return Holding. Hold
// sends a write only if the answer to the Create does not count, because the
// session has moved to another connection.
func (c *Conn) Hold() error {
	err := c.keepalive.hold()
	if errors.Is(err, errNoWrite) {
		return c.keepalive.proveAndHold(c.write)
	}
	return err
}

// Confirmed reports whether the lease counts from a write recent enough that a
// waiting contender may be told that its wait is over. The contender may then
// act as a holder, so a recent write must have proved that the store keeps the
// session: see keepalive. Confirmed also returns true if no such proof is
// needed, for example because the lease has ended. It does no I/O and does not
// block.
func (c *Conn) Confirmed() bool { return c.keepalive.confirmed() }

// Confirm ensures that Confirmed returns true. If the latest write is too old,
// it sends another, which concurrent calls share. The caller must hold no mutex
// that Config.Duty needs.
func (c *Conn) Confirm() error { return c.keepalive.confirm(c.write) }

// DutyChanged must be called after any change of Config.Duty that may make a
// heartbeat or a LookAhead due sooner. It does not block. It must not be called
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
