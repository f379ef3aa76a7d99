package hooks

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
)

// Of returns the Requests with which a session was begun: see [Wrap].
func Of(s driver.Session) *Requests {
	return s.(interface{ Store() session.Store }).Store().(*Requests)
}

// Set sets the hooks of c that inject faults between a session and its store:
// CutOff, Reset, SilenceNotices, LoseRequest, LoseReply, HoldRequest,
// DelayReplies and Pause. Each session of c must be a *session.Session or embed
// one, and must have been begun with a store that [Wrap] returned.
//
// CutOff, Reset, SilenceNotices and DelayReplies use the [Network] that the
// function network returns for the session. If network is nil, they act on the
// store of [Wrap]. The driver's own connections then do not break, and notices
// are not silenced.
//
// Requests and replies are lost between the session and the store of the
// driver. Whether a client library repeats requests on a new connection is left
// to the driver's own tests.
//
// A request that was delayed by [Requests.Hold] arrives through the store that
// the function late returns. If late is nil, this is the session's own store,
// which works if the End method of that store closes nothing.
func Set(c *dlocktest.Config, network func(driver.Session) *Network, late func(*testing.T, driver.Session) session.Store) {
	c.LoseRequest = func(_ *testing.T, s driver.Session, op faults.Op) { Of(s).Lose(op, false) }
	c.LoseReply = func(_ *testing.T, s driver.Session, op faults.Op) { Of(s).Lose(op, true) }
	c.HoldRequest = func(t *testing.T, s driver.Session, op faults.Op) (arrive func()) {
		return Of(s).Hold(op, func() session.Store {
			if late == nil {
				return Of(s).Unwrap()
			}
			return late(t, s)
		})
	}
	c.Pause = func(t *testing.T, s driver.Session, d time.Duration) {
		dlocktest.SkewLease(s.(interface{ Lease() *driver.Lease }).Lease(), d)
	}
	type connection interface {
		Cut() (heal func())
		Reset()
		DelayReplies(d time.Duration)
	}
	of := func(s driver.Session) connection {
		if network == nil {
			return Of(s)
		}
		return network(s)
	}
	c.CutOff = func(_ *testing.T, s driver.Session) (heal func()) { return of(s).Cut() }
	c.Reset = func(_ *testing.T, s driver.Session) { of(s).Reset() }
	c.DelayReplies = func(_ *testing.T, s driver.Session, d time.Duration) { of(s).DelayReplies(d) }
	c.SilenceNotices = func(_ *testing.T, s driver.Session) {
		if network != nil {
			network(s).SilenceNotices()
		}
	}
}
