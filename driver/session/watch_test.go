package session

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

func received(w driver.Watch) (got string) {
	synctest.Wait()
	for {
		select {
		case _, open := <-w.C:
			if !open {
				return got + "ended"
			}
			got += "released "
		default:
			return got
		}
	}
}

func waiting(t *testing.T) (f notifier, s *Session, holder, waiter driver.Joined) {
	f = newNotifier()
	s = connect(t, f, time.Minute)
	holder, waiter = join(t, s, "q"), join(t, s, "q")
	require.Zero(t, f.count("subscribe"), "the Create has armed the watch")
	require.Empty(t, received(waiter.Watch))
	return f, s, holder, waiter
}

func TestANoticeWithTheProofHandsTheLockOnWithoutARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, holder, waiter := waiting(t)
		require.NoError(t, s.Delete(t.Context(), "q", holder.Place, driver.Released))
		assert.Empty(t, received(waiter.Watch), "the session's own waiters wait for the notice, too")
		f.host.Gone("q", holder.Name, driver.Released, "proof of "+holder.Name)
		assert.Equal(t, "released ", received(waiter.Watch))
		assert.Zero(t, f.count("look")+f.count("subscribe"))
	})
}

// Anyone can send notices, but only the store knows the proof.
func TestANoticeWithoutTheProofOnlyMakesTheWaiterLook(t *testing.T) {
	for _, proof := range []string{"", "guess"} {
		synctest.Test(t, func(t *testing.T) {
			f, _, holder, waiter := waiting(t)
			f.host.Gone("q", holder.Name, driver.Released, proof)
			assert.Equal(t, "ended", received(waiter.Watch))
		})
	}
}

// The lost notices may have been about the waiter's own node.
func TestANoticeAfterALossOnlyMakesTheWaiterLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, holder, waiter := waiting(t)
		f.set(func() { f.before = hang("look") })
		f.host.Lost()
		f.host.Gone("q", holder.Name, driver.Released, "proof of "+holder.Name)
		assert.Equal(t, "ended", received(waiter.Watch))
		require.NoError(t, s.Err())
	})
	synctest.Test(t, func(t *testing.T) { // after a read, a notice is enough again
		f, _, holder, waiter := waiting(t)
		f.host.Lost()
		assert.Empty(t, received(waiter.Watch))
		assert.Equal(t, 1, f.count("look"), "a loss makes the session look at once")
		f.host.Gone("q", holder.Name, driver.Released, "proof of "+holder.Name)
		assert.Equal(t, "released ", received(waiter.Watch))
	})
}

func (n notifier) notice() {
	n.host.Noticed("q", func(name string) bool {
		return !slices.ContainsFunc(n.nodes("q"), func(n Node) bool { return n.Name == name })
	})
}

func TestANoticeThatNeedNotBeTrueOnlyMakesTheSessionLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, holder, waiter := waiting(t)
		f.notice()
		assert.Empty(t, received(waiter.Watch))
		assert.Zero(t, f.count("look"), "the watched nodes are there")
		f.host.Noticed("q", func(string) bool { return true })
		assert.Empty(t, received(waiter.Watch))
		f.other(Change{Kind: Delete, Queue: "q", Place: holder.Place, Cause: driver.Released})
		for _, want := range []string{"released ", ""} {
			f.notice()
			assert.Equal(t, want, received(waiter.Watch))
			assert.Equal(t, 2, f.count("look"), "the released node is not missed again")
		}
		w, err := s.WatchQueue(t.Context(), "q")
		require.NoError(t, err)
		f.notice()
		assert.Equal(t, "ended", received(w))
	})
}

func TestALossBeforeTheFirstCreateIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newNotifier()
		f.before = hang("look")
		s := connect(t, f, time.Minute)
		for range 2 {
			f.other(Change{Kind: Create, Queue: "q", Prefix: "a-W-"})
		}
		nodes := f.nodes("q")
		w, err := s.Watch(t.Context(), "q", driver.Place{Node: contenders(nodes)[1]}, contenders(nodes)[0])
		require.NoError(t, err)
		f.host.Lost()
		join(t, s, "another")
		f.host.Gone("q", nodes[0].Name, driver.Released, nodes[0].Proof)
		assert.Equal(t, "ended", received(w))
	})
}

// An answer about one watch does not show whether another waiter lost its node.
func TestALossIsNotOverWithAnAnswerAboutSomeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := partial{newNotifier()}
		f.before = hang("look")
		s := connect(t, f, time.Minute)
		holder, waiter, third := join(t, s, "q"), join(t, s, "q"), join(t, s, "q")
		f.host.Lost()
		_, err := s.Watch(t.Context(), "q", third.Place, waiter.Node)
		require.NoError(t, err)
		f.host.Gone("q", holder.Name, driver.Released, "proof of "+holder.Name)
		assert.Equal(t, "ended", received(waiter.Watch))
	})
}

func TestADeleteThatFindsNoNodeEndsItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, _, waiter := waiting(t)
		f.other(Change{Kind: Delete, Queue: "q", Place: waiter.Place})
		require.ErrorIs(t, s.Delete(t.Context(), "q", waiter.Place, driver.Changed), driver.ErrGone)
		assert.Equal(t, "ended", received(waiter.Watch))
	})
}

func TestAWatchEndsNoOtherWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := connect(t, partial{newNotifier()}, time.Minute)
		holder, waiter, third := join(t, s, "q"), join(t, s, "q"), join(t, s, "q")
		queue, err := s.WatchQueue(t.Context(), "q")
		require.NoError(t, err)
		w, err := s.Watch(t.Context(), "q", third.Place, holder.Node)
		require.NoError(t, err)
		for _, w := range []driver.Watch{waiter.Watch, third.Watch, queue, w} {
			assert.Empty(t, received(w))
		}
	})
}

func TestALookAfterALossFindsWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, _, waiter := waiting(t)
		f.mu.Lock()
		delete(f.queues, "q")
		f.before = func(_ context.Context, what string) error {
			if what == "look" && f.count("look") < 4 {
				return errBroken
			}
			return nil
		}
		f.mu.Unlock()
		f.host.Lost()
		time.Sleep(time.Second)
		assert.Equal(t, "ended", received(waiter.Watch), "the session looks until the store answers")
	})
}

func TestNoticesThatOvertakeTheAnswerAreNotMissed(t *testing.T) {
	for _, c := range []struct {
		name          string
		meanwhile     func(f notifier, holder driver.Place)
		want          string
		subscriptions int
	}{
		{"released", func(f notifier, holder driver.Place) {
			f.host.Gone("q", holder.Name, driver.Released, "proof of "+holder.Name)
		}, "released ", 0},
		{"gone", func(f notifier, holder driver.Place) { f.host.Gone("q", holder.Name, driver.Changed, "") }, "ended", 0},
		{"noticed", func(f notifier, holder driver.Place) {
			delete(f.queues, "q")
			f.host.Noticed("q", func(string) bool { return true })
		}, "ended", 0},
		{"lost", func(f notifier, holder driver.Place) {
			delete(f.queues, "q")
			f.host.Lost()
		}, "ended", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newNotifier()
				s := connect(t, f, time.Minute)
				holder := join(t, s, "q")
				f.after = func(_ context.Context, what string) error {
					if what == "create" {
						c.meanwhile(f, holder.Place)
					}
					return nil
				}
				waiter := join(t, s, "q")
				assert.Equal(t, c.want, received(waiter.Watch))
				assert.Equal(t, c.subscriptions, f.count("subscribe"))
			})
		})
	}
}

// If a connection falls silent, notices are lost without an error.
func TestANoticeThatNeverComesIsNoticedWithinTheSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, _, waiter := waiting(t)
		f.set(func() { f.queues["q"] = f.queues["q"][1:] })
		time.Sleep(s.config.Timeout / 2)
		assert.Equal(t, "ended", received(waiter.Watch))
		assert.LessOrEqual(t, f.count("look"), 2)
	})
}

func TestAStoreMayCallForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, _, waiter := waiting(t)
		f.set(func() { f.queues["q"] = f.queues["q"][1:] })
		f.host.Look()
		assert.Equal(t, "ended", received(waiter.Watch))
	})
}

func TestAStoreMayAskWhetherAQueueIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, _, waiter := waiting(t)
		assert.True(t, f.host.Watched("q"))
		assert.False(t, f.host.Watched("another"))
		waiter.Watch.Stop()
		assert.False(t, f.host.Watched("q"))
	})
}

func TestASessionWithoutNoticesPollsAndSubscribesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, holder, waiter := waiting(t)
		f.deaf.Store(true)
		f.host.Lost()
		time.Sleep(10 * time.Second)
		assert.Empty(t, received(waiter.Watch))
		assert.Greater(t, f.count("look"), 20)
		assert.Greater(t, f.count("subscribe"), 5)
		f.other(Change{Kind: Delete, Queue: "q", Place: holder.Place})
		time.Sleep(time.Second)
		assert.Equal(t, "ended", received(waiter.Watch))
	})
}

func TestALookSaysThatANodeWasReleased(t *testing.T) {
	for why, want := range map[driver.Cause]string{driver.Released: "released ", driver.Changed: "ended"} {
		for _, waits := range []time.Duration{0, time.Second} { // release before or after the first Look
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				s := connect(t, f, time.Minute)
				holder, waiter := join(t, s, "q"), join(t, s, "q")
				time.Sleep(waits)
				f.other(Change{Kind: Delete, Queue: "q", Place: holder.Place, Cause: why})
				time.Sleep(time.Second)
				assert.Equal(t, want, received(waiter.Watch))
			})
		}
	}
}

func TestOneLookServesAllWatchesAndLooksBecomeRarer(t *testing.T) {
	for _, versions := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n := newNotifier()
			f := n.fake
			n.deaf.Store(true)
			var st Store = f
			if !versions {
				st = partial{n}
			}
			s := connect(t, st, time.Minute)
			for _, queue := range []string{"a", "b", "c"} {
				join(t, s, queue)
				join(t, s, queue)
			}
			time.Sleep(time.Second)
			first := f.count("look")
			assert.Less(t, first, 60)
			time.Sleep(10 * time.Second)
			assert.LessOrEqual(t, f.count("look")-first, 44)
			assert.GreaterOrEqual(t, f.count("look")-first, 40)
		})
	}
}

// Looks at single queues must not postpone the next look at all queues.
func TestLooksThatTheStoreCallsForPostponeNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, _, waiter := waiting(t)
		join(t, s, "busy")
		join(t, s, "busy")
		f.set(func() { f.queues["q"] = f.queues["q"][1:] }) // without a notice
		for range 4 {
			s.looks.now("busy", "left")
			time.Sleep(s.config.Timeout / 8)
		}
		assert.Equal(t, "ended", received(waiter.Watch))
	})
}

func TestASessionThatDoesNotWaitDoesNotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := connect(t, f, time.Minute)
		join(t, s, "q")
		waiter := join(t, s, "q")
		waiter.Watch.Stop()
		time.Sleep(time.Second)
		before := f.count("look")
		time.Sleep(time.Hour)
		assert.Equal(t, before, f.count("look"))
	})
}

func TestAWatchOfTheQueueEndsWithEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := connect(t, f, time.Minute)
		holder := join(t, s, "q")
		for _, change := range []func(){
			func() { join(t, s, "q") },
			func() { require.NoError(t, s.Delete(t.Context(), "q", holder.Place, driver.Released)) },
			func() { f.other(Change{Kind: Create, Queue: "q", Prefix: "b-W-"}); time.Sleep(time.Second) },
		} {
			w, err := s.WatchQueue(t.Context(), "q")
			require.NoError(t, err)
			require.Empty(t, received(w))
			change()
			assert.Equal(t, "ended", received(w))
		}
	})
}

func TestAWatchOfANodeThatIsGoneHasEnded(t *testing.T) {
	f := newNotifier()
	s := connect(t, f, time.Minute)
	p := driver.Place{Node: driver.Node{Name: "a-W-0000000001", Seq: 1}, Token: 1}
	w, err := s.Watch(t.Context(), "q", p)
	require.NoError(t, err)
	_, open := <-w.C
	assert.False(t, open)
	assert.Zero(t, s.watches.Len())
}

func TestANodeReleasedBeforeTheFirstLookIsNotReported(t *testing.T) {
	now := Snapshot{Version: 2, Released: "a-W-0000000001"}
	assert.Zero(t, releasedSince(Snapshot{}, now))
	assert.Zero(t, releasedSince(Snapshot{Nodes: []Node{{Name: now.Released}}, Released: now.Released}, now))
	before := Snapshot{Version: 1, Nodes: []Node{{Name: now.Released}}}
	assert.Equal(t, driver.Node{Name: now.Released, Seq: 1}, releasedSince(before, now))
}

func TestAWaiterWhoseTurnIsFarPollsLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.pause = 10 * time.Second
		s := connect(t, f, time.Hour)
		join(t, s, "q")
		join(t, s, "q")
		time.Sleep(time.Minute - 1)
		assert.Equal(t, 6, f.count("look"), "the first at once")
	})
}

func TestAWaiterBehindManyPollsLessOften(t *testing.T) {
	for others, looks := range map[int]int{1: 44, 30: 21, 1000: 3} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			s := connect(t, f, time.Hour)
			for range others {
				f.other(Change{Kind: Create, Queue: "q", Prefix: "b-W-"})
			}
			join(t, s, "q")
			time.Sleep(time.Second - 1)
			assert.Equal(t, looks, f.count("look"), others)
		})
	}
}

func TestAHolderPollsItsOwnNodeRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := connect(t, f, time.Hour)
		j := join(t, s, "q")
		w, err := s.Watch(t.Context(), "q", j.Place)
		require.NoError(t, err)
		defer w.Stop()
		before := f.count("look")
		time.Sleep(time.Second - 1)
		assert.Equal(t, 3, f.count("look")-before)
	})
}

func TestTheStoreAwaitsTheNodeAheadIfItsTurnIsNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s, err := Connect(t.Context(), f, Config{Name: "fake", ID: "me", Timeout: time.Hour, Awaits: true})
		require.NoError(t, err)
		defer s.Close()
		for range nearby + 1 {
			f.other(Change{Kind: Create, Queue: "q", Prefix: "b-W-"})
		}
		ahead := append([]Node(nil), f.queues["q"]...)
		w := join(t, s, "q").Watch
		time.Sleep(15 * time.Millisecond)
		assert.Zero(t, f.count("await"))
		for _, n := range ahead {
			f.other(Change{Kind: Delete, Queue: "q", Place: driver.Place{Token: n.Token}, Cause: driver.Released})
			time.Sleep(3 * time.Millisecond)
		}
		assert.Equal(t, driver.Released, <-w.C)
		assert.Equal(t, []int{1, 5}, []int{f.count("look"), f.count("await")})
		w.Stop()
		other := f.queues["q"][0] // an observer's Place has no Token
		_, err = s.Watch(t.Context(), "q", driver.Place{Node: driver.Node{Name: other.Name, Seq: other.Token}})
		require.NoError(t, err)
		time.Sleep(time.Second)
		assert.Equal(t, 5, f.count("await"))
	})
}
