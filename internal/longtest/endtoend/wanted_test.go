package endtoend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// Wanted watches and lists the queue at once, and again after each change until
// a contender waits. Both requests are lists.
func TestEachChangeOfTheQueueCostsWantedTwoRequests(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	w.swiftly(func() time.Duration {
		lock, err := c.RWMutex("q").RLock(w.soon())
		require.NoError(t, err)
		began, before := time.Now(), proxy.Frames(zktest.OpGetChildren2)
		var beside *dlock.Lock
		var writer *contender
		made := spent(t, proxy, func() {
			untilListed := func(n int) {
				w.eventually(func() bool { return proxy.Frames(zktest.OpGetChildren2) >= before+n }, func() string { return "the queue is not listed" })
				_, err := c.RWMutex("other").Queue(w.soon()) // is answered later
				require.NoError(t, err)
			}
			wanted := lock.Wanted()
			untilListed(2)
			beside, err = w.client("web2").RWMutex("q").RLock(w.soon())
			require.NoError(t, err)
			untilListed(5)
			writer = w.lock(w.client("web3"))
			w.closes(wanted, "the channel of Wanted")
		})
		took := time.Since(began)
		if took < swift {
			require.Equal(t, map[string]int{"list": 3*2 + 2}, made, "two lists are of other")
		}
		w.unlock(lock, beside)
		w.unlock(writer.granted())
		return took
	})
}
