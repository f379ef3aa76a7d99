package ensemble

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

// A server is stopped, as by a long garbage collection. Once it continues, it
// does not notice at first that time has passed. A holder on it must learn of
// the loss before the lock is granted to a client of another server.
func TestHolderOnAServerThatIsStoppedIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	const holders, timeout = 4, 2 * time.Second
	e := ensemble(t, 6) // syncLimit of 3s
	for name, server := range map[string]func(testing.TB) int{"a follower": e.Follower, "the leader": e.Leader} {
		t.Run(name, func(t *testing.T) {
			i := server(t)
			runs := contendAcross(t, e, i, "/"+strings.Fields(name)[1], holders, timeout)
			e.Servers[i].Pause()
			logMargins(t, name+" stopped", margins(t, runs))
			e.Servers[i].Resume()
		})
		e.WaitQuorum(t)
	}
}

// A short delay of the disks must not cost the holder its lock. A long one
// keeps its writes unanswered, and the holder must then give up the lock,
// although the servers may still keep its session.
func TestHolderOnServersWithSlowDisksIsToldBeforeTheNextGrant(t *testing.T) {
	t.Parallel()
	zktest.RequireSlowDisk(t)
	const timeout = 6 * time.Second
	e := zktest.StartEnsemble(t, 3, zktest.WithSlowDisk())
	slow := func(d time.Duration) {
		for _, s := range e.Servers {
			s.SetDiskDelay(d)
		}
	}
	at := dsn("/d?session_timeout="+timeout.String(), e.Addrs()...)
	h := contend(t, "q", at, at)

	slow(100 * time.Millisecond)
	for began := time.Now(); time.Since(began) < 3*timeout/2; time.Sleep(20 * time.Millisecond) {
		require.NoError(t, h.lock.Err(), "the disks are slow, but fast enough for the lease")
	}
	require.Empty(t, h.next)

	slow(3 * timeout / 2)
	select {
	case <-h.lock.Lost():
	case <-time.After(bound):
		t.Fatal("the holder has not learned of the loss")
	}
	slow(0)
	logMargins(t, "slow disks", margins(t, []*handover{h}))
}
