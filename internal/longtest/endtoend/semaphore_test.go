package endtoend_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestFreeUnitsAreTwoRequestsAndThreeBesideHolders(t *testing.T) {
	w := newFixture(t)
	holder := w.client("web1").Semaphore("q", 3)
	c, proxy := w.proxied("web2")
	s := c.Semaphore("q", 3)
	turn := func(s *dlock.Semaphore) *dlock.Lock {
		l, err := s.Acquire(w.soon(), 1)
		require.NoError(t, err)
		return l
	}
	w.unlock(turn(s)) // so that the client knows the queue
	w.swiftly(func() time.Duration {
		began := time.Now()
		alone := spent(t, proxy, func() { w.unlock(turn(s)) })
		took := time.Since(began)
		if took < swift {
			require.Equal(t, map[string]int{"multi": 1, "delete": 1}, alone)
		}
		return took
	})
	held := turn(holder)
	w.swiftly(func() time.Duration {
		began := time.Now()
		beside := spent(t, proxy, func() { w.unlock(turn(s)) })
		took := time.Since(began)
		if took < swift {
			require.Equal(t, map[string]int{"multi": 1, "list": 1, "delete": 1}, beside)
		}
		return took
	})
	w.unlock(held)
}

// A release wakes only two waiters. The one that is granted the units lists the
// queue and renames its node. The next one lists the queue and watches every
// holder.
func TestAReleaseOfUnitsWakesTwoWaitersHoweverManyWait(t *testing.T) {
	for _, n := range []int{8, 32} {
		t.Run(fmt.Sprintf("%d units", n), func(t *testing.T) { handOverUnits(t, n) })
	}
}

func handOverUnits(t *testing.T, n int) {
	const waiters, counted = 30, 20
	w := newFixture(t)
	first := w.client("web0")
	var holders []*dlock.Lock
	for range n {
		l, err := first.Semaphore("q", n).Acquire(w.soon(), 1)
		require.NoError(t, err)
		holders = append(holders, l)
	}
	proxy := zktest.NewProxy(w, w.server.Addr())
	dsn := w.dsn(proxy.Addr(), "session_timeout="+quiet.String())
	granted := make(chan *dlock.Lock, waiters)
	watches := 0 // requests that watch nodes
	watching := func(more int) {
		watches += more
		w.eventually(func() bool { return proxy.Frames(zktest.OpGetData) >= watches }, func() string {
			return fmt.Sprintf("%d watches, and not %d", proxy.Frames(zktest.OpGetData), watches)
		})
	}
	for i := range waiters {
		s := w.open(dsn, fmt.Sprint("web", 1+i)).Semaphore("q", n)
		go func() {
			l, err := s.Acquire(w.soon(), 1)
			if err == nil {
				granted <- l
			}
		}()
		ahead := 1
		if i == 0 {
			ahead = n
		}
		watching(2 + ahead)
	}
	counts := func() [3]int {
		return [3]int{proxy.Frames(zktest.OpMulti), proxy.Frames(zktest.OpGetChildren2), proxy.Frames(zktest.OpGetData)}
	}
	before := counts()
	for range counted {
		w.unlock(holders[0])
		holders[0] = <-granted
		watching(n + 1) // its own node, and those of the holders
	}
	after := counts()
	require.Equal(t, [2]int{counted, 2 * counted}, [2]int{after[0] - before[0], after[1] - before[1]})
	// On a slow machine, a holder may watch its own node again after 300 ms.
	require.GreaterOrEqual(t, after[2]-before[2], (n+1)*counted)
	require.LessOrEqual(t, after[2]-before[2], (n+2)*counted)
	for range waiters - counted {
		w.unlock(holders[0])
		holders = append(holders[1:], <-granted)
	}
	w.unlock(holders...)
	w.listed("q")
}
