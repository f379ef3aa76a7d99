package endtoend_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
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

// A hand-over is the delete, three requests of the waiter that is granted, for a
// list and its mark, and the list of the next one, which then watches every
// holder. All other waiters sleep.
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
	var waits atomic.Int64 // how often a waiter has begun to wait
	granted := make(chan *dlock.Lock, waiters)
	counting := dlock.WithTrace(&dlock.Trace{Waiting: func(context.Context, dlock.WaitingInfo) { waits.Add(1) }})
	for i := range waiters {
		s := w.client(fmt.Sprint("web", 1+i), counting).Semaphore("q", n)
		go func() {
			l, err := s.Acquire(w.soon(), 1)
			if err == nil {
				granted <- l
			}
		}()
		w.eventually(func() bool { return waits.Load() == int64(1+i) }, func() string { return "the waiter does not wait" })
	}
	var before int64
	for i := range 2 + counted {
		if i == 2 {
			before = w.server.Requests(t)
		}
		w.unlock(holders[i%n])
		holders[i%n] = <-granted
		w.eventually(func() bool { return waits.Load() == int64(waiters+1+i) }, func() string { return "the next waiter does not wait" })
	}
	cost := float64(w.server.Requests(t)-before) / counted
	t.Logf("%.2f requests for each hand-over of one of %d units", cost, n)
	require.InDelta(t, float64(n)+5, cost, 2)
	for range waiters - counted - 2 {
		w.unlock(holders[0])
		holders = append(holders[1:], <-granted)
	}
	w.unlock(holders...)
	w.listed("q")
}
