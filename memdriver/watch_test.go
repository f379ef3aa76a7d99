package memdriver_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

func TestWatchOfANodeClosesHoweverItGoes(t *testing.T) {
	for how, end := range map[string]func(st *memdriver.Store, s driver.Session, p driver.Place){
		"deleted":       func(_ *memdriver.Store, s driver.Session, p driver.Place) { _ = s.Delete(background, queue, p) },
		"closed":        func(_ *memdriver.Store, s driver.Session, _ driver.Place) { _ = s.Close() },
		"expired":       func(st *memdriver.Store, s driver.Session, _ driver.Place) { st.Faults().Expire(s) },
		"node removed":  func(st *memdriver.Store, _ driver.Session, p driver.Place) { st.Faults().RemoveNode(queue, p.Name) },
		"queue removed": func(st *memdriver.Store, _ driver.Session, _ driver.Place) { st.Faults().RemoveQueue(queue) },
		"timed out": func(st *memdriver.Store, s driver.Session, _ driver.Place) {
			st.Faults().CutOff(s)
			elapse(10 * time.Second)
		},
		"replaced": func(_ *memdriver.Store, s driver.Session, p driver.Place) {
			_, _ = s.(driver.Replacer).Replace(background, queue, p, "web1-R-")
		},
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				st := memdriver.New()
				s, other := connect(t, st), connect(t, st)
				p, rest := create(t, s), create(t, other)
				node, membership, unrelated := watch(t, other, p.Name), watch(t, other, ""), watch(t, other, rest.Name)
				require.True(t, open(node))
				require.True(t, open(membership))
				end(st, s, p)
				require.False(t, open(node))
				require.False(t, open(membership))
				if how != "queue removed" {
					require.True(t, open(unrelated))
				}
			})
		})
	}
}

func TestWatchOfAMissingNodeClosesAtOnce(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	p := create(t, s)
	require.NoError(t, s.Delete(background, queue, p))
	<-watch(t, s, p.Name)
	ch, err := s.Watch(background, "no/such/queue", p.Name)
	require.NoError(t, err)
	require.Equal(t, driver.Changed, <-ch)
	require.Zero(t, st.Stats().Watches)
	require.Equal(t, 1, st.Stats().Queues)
}

func TestWatchOfTheMembershipClosesOnTheNextChange(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		ch := watch(t, s, "") // of a queue that does not exist yet
		require.True(t, open(ch))
		p := create(t, s)
		require.False(t, open(ch))
		ch = watch(t, s, "")
		require.True(t, open(ch))
		require.NoError(t, s.Delete(background, queue, p))
		require.False(t, open(ch))
		ch = watch(t, s, "")
		require.NoError(t, st.Faults().PutNode(queue, "guest-0000000007", nil))
		require.False(t, open(ch))
	})
}

func TestEndOfTheSessionClosesItsWatches(t *testing.T) {
	for how, end := range map[string]func(st *memdriver.Store, s driver.Session){
		"closed":    func(_ *memdriver.Store, s driver.Session) { _ = s.Close() },
		"expired":   func(st *memdriver.Store, s driver.Session) { st.Faults().Expire(s) },
		"cut off":   func(st *memdriver.Store, s driver.Session) { st.Faults().CutOff(s); <-s.Done() },
		"paused":    func(st *memdriver.Store, s driver.Session) { st.Faults().Pause(s, time.Minute); _ = s.Err() },
		"timed out": func(st *memdriver.Store, _ driver.Session) { st.Faults().Down(); elapse(time.Minute) },
	} {
		t.Run(how, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T) {
				st := memdriver.New()
				s, other := connect(t, st), connect(t, st)
				p := create(t, other)
				node, membership := watch(t, s, p.Name), watch(t, s, "")
				end(st, s)
				require.False(t, open(node))
				require.False(t, open(membership))
				require.Zero(t, st.Stats().Watches)
			})
		})
	}
}

func TestEndOfTheContextFreesTheWatch(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		st := memdriver.New()
		s := connect(t, st)
		p := create(t, s)
		ctx, cancel := context.WithCancel(background)
		for range 100 {
			_, err := s.Watch(ctx, queue, p.Name)
			require.NoError(t, err)
			_, err = s.Watch(ctx, "unused", "")
			require.NoError(t, err)
		}
		require.Equal(t, 200, st.Stats().Watches)
		cancel()
		synctest.Wait()
		require.Zero(t, st.Stats().Watches)
		require.NoError(t, s.Err())
	})
}

// A context that lives for long collects nothing from watches that have ended.
func TestEndedWatchLetsGoOfItsContext(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, s driver.Session, p driver.Place){
		"deleted": func(t *testing.T, s driver.Session, p driver.Place) {
			require.NoError(t, s.Delete(background, queue, p))
		},
		"closed": func(t *testing.T, s driver.Session, _ driver.Place) { require.NoError(t, s.Close()) },
	} {
		t.Run(how, func(t *testing.T) {
			s := connect(t, memdriver.New())
			p := create(t, s)
			registered, stopped := 0, 0
			ctx := &hookedContext{Context: background, afterFunc: func() { registered++ }, stop: func() { stopped++ }}
			for _, name := range []string{p.Name, "", "missing-0000000000"} {
				_, err := s.Watch(ctx, queue, name)
				require.NoError(t, err)
			}
			end(t, s, p)
			require.Equal(t, 3, registered)
			require.Equal(t, 3, stopped)
		})
	}
}

func TestWatchesTakeNoGoroutines(t *testing.T) {
	s := connect(t, memdriver.New())
	p := create(t, s)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	before := runtime.NumGoroutine()
	for range 1000 {
		_, err := s.Watch(ctx, queue, p.Name)
		require.NoError(t, err)
	}
	require.Less(t, runtime.NumGoroutine(), before+100)
}
