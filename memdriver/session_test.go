package memdriver_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

func TestHeartbeatsKeepAnIdleSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		elapse(time.Hour)
		require.NoError(t, s.Err())
		require.Equal(t, []driver.Node{p.Node}, list(t, s))
		require.InDelta(t, 2880, requests(st, faults.OpHeartbeat), 1)
	})
}

func TestCloseEndsTheSessionAndRemovesItsNodes(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s, other := connect(t, st), connect(t, st)
		create(t, s)
		require.NoError(t, s.Close())
		require.Empty(t, list(t, other))
		require.NoError(t, s.Close(), "a second Close")
		require.ErrorIs(t, s.Err(), driver.ErrSessionEnded)
		require.ErrorContains(t, s.Err(), "closed")
		require.Equal(t, int64(1), requests(st, faults.OpClose))
	})
}

func TestCallsAfterTheEndReturnErrSessionEnded(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	p := create(t, s)
	require.NoError(t, s.Close())
	before := st.Stats().Requests
	for name, err := range everyCall(s, background, p) {
		require.ErrorIs(t, err, driver.ErrSessionEnded, name)
		require.ErrorContains(t, err, "mem: ", name)
	}
	require.Equal(t, before, st.Stats().Requests, "the store was asked")
}

func TestCallsWithAnEndedContextDoNothing(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	p := create(t, s)
	ctx, cancel := context.WithCancel(background)
	cancel()
	before := st.Stats().Requests
	for name, err := range everyCall(s, ctx, p) {
		require.ErrorIs(t, err, context.Canceled, name)
	}
	require.Equal(t, before, st.Stats().Requests, "the store was asked")
	require.Equal(t, []driver.Node{p.Node}, list(t, s))
	require.Zero(t, st.Stats().Watches)
}

func everyCall(s driver.Session, ctx context.Context, p driver.Place) map[string]error {
	errs := make(map[string]error)
	_, errs["create"] = s.Create(ctx, queue, newNode)
	_, errs["list"] = s.List(ctx, queue)
	_, errs["watch"] = s.Watch(ctx, queue, p)
	_, errs["watch queue"] = s.WatchQueue(ctx, queue)
	_, errs["replace"] = s.Replace(ctx, queue, p, "web1-R-")
	_, errs["read"] = driver.Inspect(s).Read(ctx, queue, p.Name)
	_, errs["walk"] = driver.Inspect(s).Walk(ctx, "")
	errs["delete"] = s.Delete(ctx, queue, p, driver.Changed)
	return errs
}

func TestEndOfOneSessionLeavesTheNodesOfOthers(t *testing.T) {
	st := memdriver.New()
	a, b := connect(t, st), connect(t, st)
	create(t, a)
	p := create(t, b)
	create(t, a)
	require.NoError(t, a.Close())
	require.Equal(t, []driver.Node{p.Node}, list(t, b))
}

func TestNothingOutlivesClose(t *testing.T) {
	st := memdriver.New(memdriver.WithSessionTimeout(time.Second))
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	before := runtime.NumGoroutine()
	for range 5 { // each Close takes a session timeout, because the connection is cut
		s, err := st.Connect(ctx)
		require.NoError(t, err)
		p := create(t, s)
		for range 10 {
			_, err = s.Watch(ctx, queue, p)
			require.NoError(t, err)
		}
		st.Faults().Delay(s, 10*time.Millisecond)
		require.Error(t, withDeadline(time.Millisecond, func(ctx context.Context) error {
			_, err := s.Create(ctx, queue, newNode)
			return err
		}))
		st.Faults().CutOff(s)
		_ = s.Close()
	}
	eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= before })
	eventually(t, "something is left in the store", func() bool {
		stats := st.Stats()
		return stats.Sessions == 0 && stats.Nodes == 0 && stats.Watches == 0
	})
}

// No node may be left, whatever stage a Create has reached when its session
// expires.
func TestExpiryRacesWithCreate(t *testing.T) {
	for range 50 {
		st := memdriver.New()
		s := connect(t, st)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for s.Err() == nil {
					_, _ = s.Create(background, queue, newNode)
				}
			})
		}
		st.Faults().Expire(s)
		wg.Wait()
		require.Zero(t, st.Stats().Nodes)
		require.Zero(t, st.Stats().Sessions)
	}
}

// Four goroutines contend for one lock, with a new session each time. Two of
// them abandon their nodes by letting sessions expire. No goroutine may wait
// forever, and no node may be left.
func TestStressLeavesNothing(t *testing.T) {
	st := memdriver.New()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 30 {
				s, err := st.Connect(background)
				if err != nil {
					t.Error(err)
					return
				}
				for range 10 {
					if err := pass(s); err != nil {
						t.Error(err)
					}
				}
				if i%2 == 0 {
					_, _ = s.Create(background, queue, newNode)
					st.Faults().Expire(s)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	stats := st.Stats()
	require.Equal(t, memdriver.Stats{Queues: 1, Requests: stats.Requests}, stats)
}

// pass acquires and releases a lock by hand: it creates a node, waits until the
// node is first in the queue, and releases it.
func pass(s driver.Session) error {
	p, err := s.Create(background, queue, newNode)
	if err != nil {
		return err
	}
	for {
		nodes, err := s.List(background, queue)
		if err != nil {
			return err
		}
		if nodes[0] == p.Node {
			return s.Delete(background, queue, p.Place, driver.Released)
		}
		w, err := s.Watch(background, queue, p.Place, nodes[slices.Index(nodes, p.Node)-1])
		if err != nil {
			return err
		}
		<-w.C
		w.Stop()
	}
}

func TestLeaseCountsFromTheSendingOfTheLastRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		st.Faults().Delay(s, 2*time.Second)
		elapse(time.Second)
		sent := time.Now()
		create(t, s)
		require.Equal(t, 2*time.Second, time.Since(sent))
		st.Faults().CutOff(s)
		<-s.Done()
		require.Equal(t, 7500*time.Millisecond, time.Since(sent))
		synctest.Wait()
		require.Equal(t, 1, st.Stats().Nodes, "the store dropped the session before its own side knew")
	})
}
