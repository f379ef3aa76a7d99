package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/reason"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

// Interrupting the request would close the connection and leave the outcome
// unknown.
func TestACallerThatLeavesInterruptsNoRequest(t *testing.T) {
	for name, leave := range map[string]func(*Session, context.Context) error{
		"list":  func(s *Session, ctx context.Context) error { _, err := s.List(ctx, "q"); return err },
		"watch": func(s *Session, ctx context.Context) error { _, err := s.WatchQueue(ctx, "q"); return err },
		"delete": func(s *Session, ctx context.Context) error {
			for range 16 { // delay the Delete until 100 ms are left
				go s.List(context.Background(), "q")
			}
			synctest.Wait()
			return s.Delete(ctx, "q", driver.Place{Token: 7}, driver.Changed)
		},
		"create": func(s *Session, ctx context.Context) error {
			_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: "a-W-"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				interrupted := 0
				f.before = func(ctx context.Context, what string) error {
					time.Sleep(time.Second)
					if ctx.Err() != nil && what != "beat" {
						interrupted++
					}
					return nil
				}
				s := connect(t, f, time.Minute)
				limit := 100 * time.Millisecond
				if name == "delete" {
					limit += time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				assert.ErrorIs(t, leave(s, ctx), context.DeadlineExceeded)
				assert.Equal(t, limit, time.Since(began))
				time.Sleep(10 * time.Second)
				assert.Zero(t, interrupted)
				assert.Empty(t, f.nodes("q"), "the node of a Create that has returned an error stays")
				if name == "create" {
					assert.Equal(t, 1, f.count("delete"))
				}
			})
		})
	}
}

// A Create whose watch is interrupted has made its node all the same.
func TestACallerWithTimeLeftInterruptsItsRequest(t *testing.T) {
	for name, leave := range map[string]func(*Session, context.Context) error{
		"look": func(s *Session, ctx context.Context) error { _, err := s.List(ctx, "q"); return err },
		"create": func(s *Session, ctx context.Context) error {
			_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: "a-W-"})
			return err
		},
		"subscribe": func(s *Session, ctx context.Context) error {
			_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: "a-W-", Predecessor: last})
			_, failed := s.WatchQueue(ctx, "q")
			return errors.Join(err, failed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newNotifier()
				s := connect(t, f, time.Minute)
				join(t, s, "q")
				f.before = func(ctx context.Context, what string) error {
					if what == name {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				time.AfterFunc(time.Second, cancel)
				began := time.Now()
				assert.ErrorIs(t, leave(s, ctx), driver.ErrUnavailable)
				assert.Equal(t, time.Second, time.Since(began))
			})
		})
	}
}

func TestTheNodeOfACallerThatHasLeftIsRemovedUntilTheStoreConfirmsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := connect(t, f, time.Minute)
		f.before = func(_ context.Context, what string) error {
			switch {
			case what == "create":
				time.Sleep(time.Second)
			case what == "delete" && f.count("delete") < 4:
				return Refused(errBroken)
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: "a-W-"})
		require.Error(t, err)
		time.Sleep(10 * time.Second)
		assert.Empty(t, f.nodes("q"))
	})
}

func TestTheRemovalOfALateNodeKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(_ context.Context, what string) error {
			if what == "create" {
				time.Sleep(time.Second)
			} else if what == "delete" {
				return Refused(errBroken)
			}
			return nil
		}
		s, err := Connect(t.Context(), f, Config{Name: "fake", Timeout: time.Minute, Requests: 1})
		require.NoError(t, err)
		defer s.Close()
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error {
				_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: "a-W-"})
				assert.ErrorIs(t, err, context.DeadlineExceeded)
				return nil
			},
			func(ctx context.Context) error { _, err := s.List(ctx, "q"); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			assert.NoError(t, call(ctx))
			cancel()
			time.Sleep(2 * time.Second)
		}
		assert.Greater(t, f.count("delete"), 10)
	})
}

// Callers wait for a slot, so that heartbeats find a free connection.
func TestCallersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		busy, most := 0, 0
		f.before = func(_ context.Context, what string) error {
			if what == "look" {
				f.mu.Lock()
				busy++
				most = max(most, busy)
				f.mu.Unlock()
				time.Sleep(time.Second)
				f.set(func() { busy-- })
			}
			return nil
		}
		s, err := Connect(t.Context(), f, Config{Name: "fake", Timeout: 4 * time.Second, Requests: 2, Busy: "raise pool_size"})
		require.NoError(t, err)
		defer s.Close()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, err := s.List(t.Context(), "q")
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.List(ctx, "q")
		assert.ErrorIs(t, err, driver.ErrUnavailable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "all 2 requests that the session may make at once were under way: raise pool_size")
		all.Wait()
		assert.Equal(t, 2, most)
		assert.Equal(t, 20, f.count("look"))
	})
}

type admitting struct {
	*fake
	full chan struct{} // blocks while full
}

func (a admitting) Admit(ctx context.Context) error {
	select {
	case <-a.full:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: full: %w", driver.ErrUnavailable, ctx.Err())
	}
}

func TestACallerThatLeavesWhileTheStoreIsFullHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := admitting{newFake(), make(chan struct{})}
		s, err := Connect(t.Context(), a, Config{Name: "fake", Timeout: 4 * time.Second, Requests: 1})
		require.NoError(t, err)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = s.List(ctx, "q")
			cancel()
			assert.ErrorContains(t, err, "full")
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}
		assert.Zero(t, a.count("look"))
		ended := make(chan error)
		go func() {
			_, err := s.List(t.Context(), "q")
			ended <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		assert.ErrorIs(t, <-ended, driver.ErrSessionEnded)
	})
}

func TestARequestWithoutAnAnswerMeetsATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = hang("look")
		s := connect(t, f, time.Minute)
		began := time.Now()
		_, err := s.List(t.Context(), "q")
		assert.Equal(t, s.limit(), time.Since(began))
		assert.ErrorIs(t, err, driver.ErrUnavailable)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)

		closed := connect(t, f, time.Minute)
		time.AfterFunc(time.Second, func() { assert.NoError(t, closed.Close()) })
		began = time.Now()
		_, err = closed.List(context.WithoutCancel(t.Context()), "q")
		assert.ErrorIs(t, err, driver.ErrSessionEnded)
		assert.Equal(t, time.Second, time.Since(began))

		for _, what := range []string{"delete", "look"} { // a Delete of a missing node also looks
			f.set(func() { f.before = hang(what) })
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			began = time.Now()
			assert.ErrorIs(t, s.Delete(ctx, "q", driver.Place{Token: 7}, driver.Released), driver.ErrUnavailable)
			assert.Equal(t, 2*time.Second, time.Since(began), what)
			cancel()
		}

		f.set(func() {
			f.before = func(context.Context, string) error { return fmt.Errorf("i/o timeout: %w", context.DeadlineExceeded) }
		})
		_, err = s.List(t.Context(), "q")
		assert.ErrorIs(t, err, driver.ErrUnavailable, "a client library may have limits of its own")
		assert.NotErrorIs(t, err, context.DeadlineExceeded)

		f.set(func() { f.before = hang("begin") })
		began = time.Now()
		_, err = Connect(t.Context(), f, Config{Name: "fake", Timeout: time.Minute})
		assert.Equal(t, time.Minute, time.Since(began))
		assert.ErrorIs(t, err, driver.ErrUnavailable)
	})
}

func TestAnAnswerThatTheSessionIsGoneEndsIt(t *testing.T) {
	for what, ask := range map[string]func(*Session){
		"create": func(s *Session) { _, _ = s.Create(context.Background(), "q", driver.NodeSpec{Prefix: "a-W-"}) },
		"delete": func(s *Session) { _ = s.Delete(context.Background(), "q", driver.Place{Token: 7}, driver.Released) },
		"look":   func(s *Session) { _, _ = s.List(context.Background(), "q") },
		"cancel": func(s *Session) { s.orphan(Change{}); time.Sleep(time.Second) },
		"expire": func(s *Session) { s.due <- 0; time.Sleep(time.Second) },
		"beat":   func(*Session) { time.Sleep(time.Hour) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			s := connect(t, expirer{f}, time.Hour)
			f.mu.Lock()
			f.before = func(_ context.Context, asked string) error {
				if asked == what {
					return fmt.Errorf("%w: no such session", driver.ErrSessionEnded)
				}
				return nil
			}
			f.mu.Unlock()
			ask(s)
			require.ErrorIs(t, s.Err(), driver.ErrSessionEnded, what)
			assert.ErrorContains(t, s.Err(), "no such session")
		})
	}
}

func TestConnectWithALateAnswerMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(context.Context, string) error { time.Sleep(2 * time.Minute); return nil }
		_, err := Connect(t.Context(), f, Config{Name: "fake", Timeout: time.Minute})
		assert.ErrorIs(t, err, driver.ErrUnavailable)
		assert.NotErrorIs(t, err, driver.ErrSessionEnded)
	})
}

func TestConnectWaitsForTheLeasesOfALostGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &graceful{fake: newFake(), until: time.Now().Add(10 * time.Second)}
		began := time.Now()
		s := connect(t, st, time.Minute)
		assert.Equal(t, 10*time.Second, time.Since(began))
		assert.Equal(t, 10*time.Second, s.Describe().Grace)
		assert.Equal(t, "g2", s.Describe().Generation)

		st.until = time.Now().Add(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var told error
		_, err := Connect(reason.With(ctx, func(err error) { told = err }), st, Config{Name: "fake", Timeout: time.Minute, Server: func() string { return "here" }})
		assert.ErrorIs(t, err, driver.ErrUnavailable)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		until := "no lock is granted for another 1h0m0s, until " + st.until.Format(time.TimeOnly)
		assert.ErrorContains(t, err, until)
		assert.ErrorContains(t, told, until, "while it waits")

		ctx, cancel = context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		st.hangs, st.begun = true, 0
		_, err = Connect(ctx, st, Config{Name: "fake", Timeout: time.Minute})
		assert.ErrorContains(t, err, "no lock is granted for another 59m", "the second Begin has no answer")
	})
}

// graceful is a fake whose sessions cannot begin before a given time.
type graceful struct {
	*fake
	until time.Time
	hangs bool // whether the second Begin of a Connect hangs
	begun int
}

func (g *graceful) Begin(ctx context.Context, _ time.Duration) (Begun, error) {
	if g.begun++; g.hangs && g.begun == 2 {
		<-ctx.Done()
		return Begun{}, ctx.Err()
	}
	left := max(0, time.Until(g.until))
	return Begun{Wait: min(left, 4*time.Second), Rest: left, Generation: "g2"}, nil
}

func TestAFailureOfCloseMatchesErrUnavailableAndSaysSoOnce(t *testing.T) {
	for _, want := range []error{errors.New("permission denied"), errBroken} {
		f := newFake()
		s := connect(t, f, time.Hour)
		f.before = func(context.Context, string) error { return want }
		err := s.Close()
		assert.ErrorIs(t, err, driver.ErrUnavailable)
		assert.ErrorIs(t, err, want)
		assert.Equal(t, 1, strings.Count(err.Error(), driver.ErrUnavailable.Error()), err)
		f.before = nil
		assert.NoError(t, s.Close(), "the next Close tries again")
		assert.NoError(t, s.Close())
		assert.Equal(t, 2, f.count("end"))
	}
}

// A connection may break with many calls in flight.
func TestLostRepliesAreCleanedUpTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &canceller{fake: newFake()}
		s := connect(t, st, time.Hour)
		st.after = func(_ context.Context, what string) error {
			switch {
			case what == "create":
				return errBroken
			case what == "cancel" && st.count("cancel")%3 == 2:
				return errors.New("permission denied")
			}
			return nil
		}
		data := []byte("data")
		for range 1000 {
			_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: data})
			require.ErrorIs(t, err, driver.ErrUnavailable)
		}
		copy(data, "lost")
		time.Sleep(time.Minute)
		synctest.Wait()
		st.mu.Lock()
		defer st.mu.Unlock()
		assert.Len(t, st.cancelled, 1000)
		assert.LessOrEqual(t, st.requests["cancel"], 40)
		for _, c := range st.cancelled {
			assert.Equal(t, "data", string(c.Data), "the data of a Create belong to its caller again when it has returned")
		}
	})
}

type canceller struct {
	*fake
	cancelled map[int64]Change
}

func (c *canceller) Cancel(ctx context.Context, creates []Change) error {
	return c.request(ctx, "cancel", func() error {
		if c.cancelled == nil {
			c.cancelled = make(map[int64]Change)
		}
		for _, x := range creates {
			c.cancelled[x.Number] = x
		}
		return nil
	})
}

func TestAnUnansweredDeleteIsRepeatedOnce(t *testing.T) {
	f := newFake()
	s := connect(t, f, time.Hour)
	j := join(t, s, "q")
	f.after = func(_ context.Context, what string) error {
		if what == "delete" && f.count(what) == 1 {
			return errBroken
		}
		return nil
	}
	assert.NoError(t, s.Delete(t.Context(), "q", j.Place, driver.Released), "the first request has removed the node")
	assert.ErrorIs(t, s.Delete(t.Context(), "q", j.Place, driver.Released), driver.ErrGone)
	assert.Equal(t, 3, f.count("delete"))
}

// After a permanent error, a caller would not retry its release.
func TestAfterTheSessionHasBegunAPasswordThatIsRefusedMayBeReplaced(t *testing.T) {
	f := newFake()
	s := connect(t, f, time.Hour)
	j := join(t, s, "q")
	wrong := errors.New("wrong password")
	f.before = func(_ context.Context, what string) error {
		if what == "delete" && f.count(what) <= 2 {
			return Login(wrong)
		}
		return nil
	}
	err := s.Delete(t.Context(), "q", j.Place, driver.Released)
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.ErrorIs(t, err, wrong)
	require.NoError(t, s.Delete(t.Context(), "q", j.Place, driver.Released))
}

// A store may answer that a node is gone although it was only being renamed.
func TestANodeThatIsThereIsNotGone(t *testing.T) {
	f := newFake()
	s := connect(t, inspected{f}, time.Minute)
	j := join(t, s, "q")
	changes := map[string]func() error{
		"set value": func() error { return s.SetValue(t.Context(), "q", j.Place, nil) },
		"replace":   func() error { _, err := s.Replace(t.Context(), "q", j.Place, "a-R-"); return err },
		"delete":    func() error { return s.Delete(t.Context(), "q", j.Place, driver.Released) },
	}
	f.before = func(_ context.Context, what string) error {
		if changes[what] != nil && f.count(what) == 1 {
			return driver.ErrGone
		}
		return nil
	}
	for _, what := range []string{"set value", "replace"} {
		err := changes[what]()
		require.ErrorIs(t, err, driver.ErrUnavailable, what)
		assert.NotErrorIs(t, err, driver.ErrGone, what)
		require.NoError(t, changes[what](), what)
	}
	require.NoError(t, changes["delete"]()) // Delete itself repeats the request
	assert.Empty(t, f.nodes("q"))
}

func TestADeadSessionEndsAlthoughAConnectionIsSilent(t *testing.T) {
	for _, timeout := range []time.Duration{4 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f, silent := newFake(), hang("expire")
			f.deadline = time.Now().Add(4 * time.Second)
			f.before = func(ctx context.Context, what string) error {
				if f.count("expire") <= 2 {
					return silent(ctx, what)
				}
				return nil
			}
			s := connect(t, expirer{f}, timeout)
			join(t, s, "q")
			join(t, s, "q")
			time.Sleep(time.Minute)
			assert.LessOrEqual(t, f.lateBy(t), 11*time.Second)
		})
	}
}

// With a long timeout, heartbeats are too rare to find expired sessions in
// time.
func TestAWaiterWithALongTimeoutEndsADeadSessionWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := connect(t, expirer{f}, time.Hour)
		holder := join(t, s, "q")
		_, err := s.Watch(t.Context(), "q", holder.Place)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.Zero(t, f.count("expire"), "a session that does not wait leaves the search to its heartbeats")
		join(t, s, "q")
		f.set(func() { f.deadline = time.Now().Add(8 * time.Second) })
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, f.lateBy(t), 2*time.Second)
	})
	synctest.Test(t, func(t *testing.T) { // a store that ends expired sessions in Beat
		f := newFake()
		s := connect(t, f, time.Hour)
		join(t, s, "q")
		join(t, s, "q")
		time.Sleep(time.Minute)
		assert.GreaterOrEqual(t, f.count("beat"), 29)
	})
}

func TestAShortSessionDoesNotSetThePaceOfThoseThatWait(t *testing.T) {
	for _, timeout := range []time.Duration{8 * time.Second, 32 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.next = 100 * time.Millisecond
			s := connect(t, f, timeout)
			join(t, s, "q")
			join(t, s, "q")
			time.Sleep(64 * time.Second)
			beats := int(8 * 64 * time.Second / timeout)
			assert.LessOrEqual(t, f.count("beat"), 2*beats+32, "a search for each heartbeat and every two seconds at most")
		})
	}
}

type untidy struct {
	*fake
	rows int
}

func (u *untidy) Tidy(ctx context.Context) (more bool, err error) {
	err = u.request(ctx, "tidy", func() error {
		u.rows--
		more = u.rows > 0
		return nil
	})
	return more, err
}

func TestTheStoreIsTidiedEveryHourAlsoAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &untidy{newFake(), 5}
		s := connect(t, st, time.Minute)
		synctest.Wait()
		assert.Equal(t, 5, st.count("tidy"))
		st.set(func() { st.before, st.rows = hang("tidy"), 5 })
		time.Sleep(tidyPause + time.Minute)
		assert.Equal(t, 6, st.count("tidy"))
		assert.NoError(t, s.Err())
		st.set(func() { st.before = nil })
		time.Sleep(tidyPause + time.Minute)
		assert.Equal(t, 11, st.count("tidy"))
	})
}

func TestContendersAreOrderedByTheirSequence(t *testing.T) {
	nodes := contenders([]Node{{Name: "b-W-0000000009"}, {Name: "no contender"}, {Name: "a-R-0000000008"}})
	assert.Equal(t, []driver.Node{{Name: "a-R-0000000008", Seq: 8}, {Name: "b-W-0000000009", Seq: 9}}, nodes)
	assert.True(t, slices.IsSortedFunc(nodes, func(a, b driver.Node) int { return int(a.Seq - b.Seq) }))
}

func TestAStoreThatIsNoInspectorSupportsNoInspection(t *testing.T) {
	s := connect(t, newFake(), time.Hour)
	_, err := s.Walk(t.Context(), "")
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorIs(t, s.SetValue(t.Context(), "q", driver.Place{}, nil), errors.ErrUnsupported)
	assert.ErrorIs(t, s.Remove(t.Context(), "q", driver.Place{}), errors.ErrUnsupported)
}
