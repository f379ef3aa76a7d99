package zkconn

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/stretchr/testify/require"
)

func (w *world) enter() error {
	w.does.Store(int32(Holding))
	return w.keepalive.confirm(w.prove)
}

func (w *world) prove() error {
	done := make(chan struct{})
	go w.request(toQuorum, false, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-w.lease.Done():
		return w.lease.Err()
	}
}

func TestGrantAfterALongWaitLeavesEnoughOfTheLease(t *testing.T) {
	for _, x := range []struct {
		worldConfig
		least float64
	}{{waits, .25}, {waitsStated, .38}} {
		shortest := time.Hour
		each(t, x.worldConfig, func(w *world) {
			time.Sleep(trip / 3) // so as not to coincide with a heartbeat
			require.NoError(w.t, w.enter())
			w.locked(func() { require.Equal(w.t, 1, w.writes); w.down = true })
			shortest = min(shortest, w.leaseLeft())
		})
		t.Logf("%+v: %.4f T", x.worldConfig, shortest.Seconds()/x.timeout.Seconds())
		require.GreaterOrEqual(t, shortest, part100(x.timeout, x.least)-2*trip)
	}
}

// If the latest write is recent, a grant sends no further write. Even if an
// outage begins right after the grant, about a quarter of the timeout is left
// of the lease.
func TestGrantSoonAfterAWriteNeedsNoProof(t *testing.T) {
	for _, c := range []worldConfig{waits, waitsStated} {
		shortest := time.Hour
		for i := range 38 {
			for later := range 10 {
				inBubble(t, c, func(w *world) {
					time.Sleep(c.timeout*time.Duration(i)/100 + trip/3) // so as not to coincide with a heartbeat
					// The answer to a Sync may postpone the next heartbeat.
					synced := make(chan struct{})
					go w.request(toLeader, false, func() { close(synced) })
					<-synced
					require.NoError(t, w.enter())
					w.locked(func() { require.Zero(w.t, w.writes) })
					time.Sleep(c.timeout * time.Duration(later) / 10)
					require.NoError(t, w.lease.Err())
					w.locked(func() { w.down = true })
					shortest = min(shortest, w.leaseLeft())
				})
			}
		}
		t.Logf("%+v: %.4f T", c, shortest.Seconds()/c.timeout.Seconds())
		require.GreaterOrEqual(t, shortest, part100(c.timeout, .25)-3*trip)
	}
}

// Recent Syncs may have been answered by a deposed leader, so a grant makes the
// lease count from the latest write again.
func TestGrantSoonAfterAWriteCountsFromThatWrite(t *testing.T) {
	for how, fail := range breaks {
		for _, c := range []worldConfig{waits, waitsStated} {
			t.Run(how, func(t *testing.T) {
				for hundredths := range 13 {
					inBubble(t, c, func(w *world) {
						after := func(part float64, do func()) { time.AfterFunc(part100(c.timeout, part), do) }
						after(float64(hundredths)/100, func() { w.request(toServer, false, func() {}) })
						after(.36, func() { w.request(toLeader, false, func() {}) })
						after(.37, func() {
							w.does.Store(int32(Holding))
							require.True(w.t, w.keepalive.confirmed())
						})
						require.GreaterOrEqual(w.t, w.spare(fail, false), c.margin)
					})
				}
			})
		}
	}
}

// A deposed leader still answers reads and Syncs, so a waiter may learn of a
// release from it. The waiter must not act as a holder before a write has been
// answered, which a deposed leader cannot do.
func TestWaiterThatIsCutOffNeverHolds(t *testing.T) {
	for how, fail := range breaks {
		for _, c := range []worldConfig{waits, waitsStated} {
			t.Run(how, func(t *testing.T) {
				each(t, c, func(w *world) {
					w.locked(func() { fail(w) })
					time.Sleep(c.timeout / 5)
					_ = w.enter()
					require.ErrorIs(w.t, w.lease.Err(), driver.ErrSessionEnded)
				})
			})
		}
	}
}

func TestLeaseOfAWaiterEndsAMarginBeforeTheStoreEndsTheSession(t *testing.T) {
	for how, fail := range breaks {
		for _, c := range []worldConfig{waits, waitsStated, nextWaits} {
			for _, reads := range []bool{false, true} {
				t.Run(how, func(t *testing.T) {
					least := time.Hour
					each(t, c, func(w *world) { least = min(least, w.spare(fail, reads)) })
					if how == "the leader is deposed and does not know it" {
						require.Less(t, least, c.margin, "Syncs alone leave less than the margin, so a holder needs writes")
						return
					}
					require.GreaterOrEqual(t, least, c.margin)
				})
			}
		}
	}
}
