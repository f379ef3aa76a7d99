package zkconn

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func (w *world) counted() (writes, looks int) {
	w.locked(func() { writes, looks = w.writes, w.looks })
	return writes, looks
}

// turn changes the duty of the session's nodes and notifies the keepalive, as
// package zkdriver does.
func (w *world) turn(d Duty) {
	w.does.Store(int32(d))
	w.keepalive.dutyChanged(w.send)
}

// The heartbeats of a session that is next in line must be frequent enough that
// a grant never has to send a write.
func TestGrantOfTheNextInLineNeedsNoFurtherWrite(t *testing.T) {
	for _, c := range []worldConfig{nextWaits, nextStated} {
		each(t, c, func(w *world) {
			before, _ := w.counted()
			require.NoError(w.t, w.enter())
			after, _ := w.counted()
			require.Equal(w.t, before, after)
		})
	}
}

func TestGrantWaitsForTheHeartbeatInFlight(t *testing.T) {
	for _, c := range []worldConfig{nextWaits, nextStated, nextSlow} {
		for i := range 20 { // until just after the answer to a heartbeat
			inBubble(t, c, func(w *world) {
				time.Sleep(c.timeout)
				for before, _ := w.counted(); ; time.Sleep(c.trip / 10) {
					if writes, _ := w.counted(); writes > before {
						break
					}
				}
				time.Sleep(c.trip * time.Duration(i) / 10)
				before, _ := w.counted()
				require.NoError(w.t, w.enter())
				after, _ := w.counted()
				require.Equal(w.t, before, after)
			})
		}
	}
}

func TestSessionThatComesToBeNextInLineSendsOneWriteAtOnce(t *testing.T) {
	for _, c := range []worldConfig{waits, waitsStated} {
		for later := range 30 {
			each(t, c, func(w *world) {
				require.Zero(w.t, w.writes)
				w.turn(Next)
				synctest.Wait()
				writes, _ := w.counted()
				require.Equal(w.t, 1, writes)
				time.Sleep(trip * time.Duration(later) / 10)
				require.NoError(w.t, w.enter())
				writes, _ = w.counted()
				require.Equal(w.t, 1, writes)
			})
		}
	}
}

func TestSessionLooksAheadOnceItsLatestWriteIsOld(t *testing.T) {
	for _, seen := range []Duty{Waiting, Next} {
		for _, c := range []worldConfig{waits, waitsStated} {
			c.duty = Unsure
			inBubble(t, c, func(w *world) {
				w.locked(func() { w.seen = seen })
				time.Sleep(c.timeout/4 - 2*trip)
				writes, looks := w.counted()
				require.Zero(w.t, looks)
				require.Zero(w.t, writes)
				time.Sleep(4 * trip)
				writes, looks = w.counted()
				require.Equal(w.t, 1, looks)
				require.Equal(w.t, seen == Next, writes == 1)
				time.Sleep(5 * c.timeout)
				writes, looks = w.counted()
				require.Equal(w.t, 1, looks)
				require.Equal(w.t, seen == Next, writes > 0)
				w.turn(Unsure) // a node ahead has gone, so the session must look ahead
				time.Sleep(c.timeout/4 + 3*trip)
				_, looks = w.counted()
				require.Equal(w.t, 2, looks, "%v %v", seen, c.stated)
			})
		}
	}
}

func TestLookAheadThatFailsIsRepeatedAQuarterLater(t *testing.T) {
	c := waits
	c.duty = Unsure
	inBubble(t, c, func(w *world) {
		w.locked(func() { w.lookErr = errors.New("refused") })
		time.Sleep(10*c.timeout + c.timeout/8)
		writes, looks := w.counted()
		require.InDelta(w.t, 40, looks, 1)
		require.Zero(w.t, writes)
		w.locked(func() { w.lookErr, w.seen = nil, Next })
		time.Sleep(c.timeout / 4)
		writes, _ = w.counted()
		require.Equal(w.t, 1, writes)
	})
}

// After a reconnect, a session that is next in line must send a write at once,
// because writes on an earlier connection prove nothing.
func TestReconnectedNextInLineWritesAtOnce(t *testing.T) {
	for _, c := range []worldConfig{nextWaits, nextStated} {
		each(t, c, func(w *world) {
			w.locked(w.hangUp)
			time.Sleep(w.timeout/40 + 5*trip)
			before, _ := w.counted()
			require.NoError(w.t, w.enter())
			after, _ := w.counted()
			require.Equal(w.t, before, after)
		})
	}
}

// A heartbeat sent just before an outage may still lead to a grant. The lease
// must nonetheless end before the session does.
func TestNextInLineThatIsCutOffHoldsNoLongerThanItsSessionLives(t *testing.T) {
	for how, fail := range breaks {
		for _, c := range []worldConfig{nextWaits, nextStated, nextMargin} {
			t.Run(how, func(t *testing.T) {
				grants := 0
				for tenths := range 8 {
					each(t, c, func(w *world) {
						var granted atomic.Bool
						spare := w.spare(func(w *world) {
							fail(w)
							time.AfterFunc(c.timeout*time.Duration(tenths)/10, func() {
								granted.Store(w.enter() == nil && w.lease.Err() == nil)
							})
						}, false)
						if granted.Load() { // otherwise there is no lock for the lease to protect
							grants++
							require.Less(w.t, tenths, 4)
							require.GreaterOrEqual(w.t, spare, c.margin)
						}
					})
				}
				require.Positive(t, grants)
			})
		}
	}
}

// A grant may send a proof between two heartbeats. That proof proves less than
// the next heartbeat would, so it must not postpone that heartbeat by a full
// interval.
func TestProofsBetweenHeartbeatsCostNoSession(t *testing.T) {
	for _, c := range []worldConfig{waits, waitsStated, nextWaits, nextStated} {
		for _, c.trip = range []time.Duration{trip, 100 * trip} {
			for _, p := range []reach{toLeader, toQuorum} {
				each(t, c, func(w *world) {
					go w.request(p, false, func() {})
					time.Sleep(3 * c.timeout)
					require.NoError(w.t, w.lease.Err(), "%v", p)
				})
			}
			if c.duty == Waiting {
				each(t, c, func(w *world) {
					w.turn(Next)
					time.Sleep(3 * c.timeout)
					require.NoError(w.t, w.lease.Err())
				})
			}
		}
	}
}
