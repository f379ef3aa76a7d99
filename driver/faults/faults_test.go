package faults_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

func inBubble(t *testing.T, decide faults.Plan, test func(t *testing.T, w *faultyWorld)) {
	synctest.Test(t, func(t *testing.T) {
		w := &faultyWorld{t: t, store: memdriver.New()}
		w.faults = faults.New(w.store, decide)
		w.eyes = w.connect(w.store)
		test(t, w)
		for _, s := range w.sessions {
			_ = s.Close()
		}
		time.Sleep(time.Minute)
		stats := w.store.Stats()
		assert.Zero(t, stats.Nodes+stats.Watches+stats.Sessions, "left in the store")
	})
}

// inBubbles tests the fault in a request, and then in its reply.
func inBubbles(t *testing.T, op faults.Op, f faults.Fault, test func(t *testing.T, w *faultyWorld)) {
	for _, stage := range []faults.Stage{faults.StageRequest, faults.StageReply} {
		inBubble(t, on(stage, op, f), test)
	}
}

type faultyWorld struct {
	t        *testing.T
	store    *memdriver.Store
	faults   *faults.Connector
	eyes     driver.Session // lists the queue without faults
	sessions []driver.Session
}

func (w *faultyWorld) connect(c driver.Connector) driver.Session {
	s, err := c.Connect(w.t.Context())
	require.NoError(w.t, err)
	w.sessions = append(w.sessions, s)
	return s
}

func (w *faultyWorld) session() driver.Session { return w.connect(w.faults) }

func (w *faultyWorld) create(s driver.Session) driver.Place {
	j, err := s.Create(w.t.Context(), "q", newNode())
	require.NoError(w.t, err)
	return j.Place
}

func newNode() driver.NodeSpec { return driver.NodeSpec{Prefix: writer, Data: data()} }

func (w *faultyWorld) nodes() int {
	nodes, err := w.eyes.List(context.Background(), "q")
	require.NoError(w.t, err)
	return len(nodes)
}

func TestDelayedRequestAndReplyTakeTheirTime(t *testing.T) {
	delay := func(context.Context, faults.Request) faults.Fault { return faults.Fault{Delay: time.Second} }
	inBubble(t, delay, func(t *testing.T, w *faultyWorld) {
		began := time.Now()
		s := w.session()
		assert.Equal(t, 2*time.Second, time.Since(began))
		w.create(s)
		assert.Equal(t, 4*time.Second, time.Since(began))
		require.NoError(t, s.Close())
		assert.Equal(t, 5*time.Second, time.Since(began))
		assert.Equal(t, faults.Stats{Requests: 3, Delayed: 5}, w.faults.Stats())
	})
}

func TestDelayOfACloseIsBounded(t *testing.T) {
	inBubble(t, on(faults.StageRequest, faults.OpClose, faults.Fault{Delay: time.Hour}), func(t *testing.T, w *faultyWorld) {
		s := w.session()
		w.create(s)
		began := time.Now()
		require.NoError(t, s.Close())
		assert.LessOrEqual(t, time.Since(began), 2*time.Second)
		assert.Zero(t, w.nodes())
	})
}

func TestLostRequestDoesNotReachTheStore(t *testing.T) {
	inBubble(t, on(faults.StageRequest, faults.OpCreate, faults.Fault{Lose: true}), func(t *testing.T, w *faultyWorld) {
		s := w.session()
		_, err := s.Create(t.Context(), "q", newNode())
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Zero(t, w.store.Stats().Requests[faults.OpCreate])
		w.create(s)
		assert.Equal(t, faults.Stats{Requests: 3, RequestsLost: 1}, w.faults.Stats())
	})
}

func TestLostRequestReturnsTheErrorOfThePlan(t *testing.T) {
	refused := errors.New("no permission")
	inBubbles(t, faults.OpList, faults.Fault{Lose: true, Err: refused}, func(t *testing.T, w *faultyWorld) {
		_, err := w.session().List(t.Context(), "q")
		require.ErrorIs(t, err, refused)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, `list "q"`)
	})
}

func TestCreateWhoseReplyIsLostLeavesNoNode(t *testing.T) {
	inBubble(t, on(faults.StageReply, faults.OpCreate, faults.Fault{Lose: true}), func(t *testing.T, w *faultyWorld) {
		s := w.session()
		_, err := s.Create(t.Context(), "q", newNode())
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.EqualValues(t, 1, w.store.Stats().Requests[faults.OpCreate])
		synctest.Wait()
		assert.Zero(t, w.nodes())
		assert.NoError(t, s.Err())
		assert.Equal(t, 1, w.faults.Stats().RepliesLost)
	})
}

func TestCleanUpOfACreateIsRepeatedUntilTheStoreAnswers(t *testing.T) {
	decide := func(_ context.Context, r faults.Request) faults.Fault {
		return faults.Fault{Lose: r.Stage == faults.StageReply && r.Op == faults.OpCreate ||
			r.Stage == faults.StageRequest && r.Op == faults.OpCleanUp && r.Nth < 5}
	}
	inBubble(t, decide, func(t *testing.T, w *faultyWorld) {
		_, err := w.session().Create(t.Context(), "q", newNode())
		require.ErrorIs(t, err, driver.ErrUnavailable)
		synctest.Wait()
		assert.Equal(t, 1, w.nodes())
		time.Sleep(time.Second)
		assert.Zero(t, w.nodes())
	})
}

func TestCreateGivenUpOnItsWayLeavesNoNode(t *testing.T) {
	for _, stage := range []faults.Stage{faults.StageRequest, faults.StageReply} {
		var arrives chan struct{}
		keep := func(_ context.Context, r faults.Request) faults.Fault {
			if r.Op == faults.OpCreate && r.Stage == stage {
				<-arrives
			}
			return faults.Fault{}
		}
		inBubble(t, keep, func(t *testing.T, w *faultyWorld) {
			arrives = make(chan struct{})
			s := w.session()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.Create(ctx, "q", newNode())
			require.ErrorIs(t, err, context.DeadlineExceeded)
			close(arrives)
			synctest.Wait()
			assert.EqualValues(t, 1, w.store.Stats().Requests[faults.OpCreate], "it has arrived all the same")
			assert.Zero(t, w.nodes())
		})
	}
}

func TestDeleteWhoseReplyIsLostIsCarriedOut(t *testing.T) {
	inBubble(t, on(faults.StageReply, faults.OpDelete, faults.Fault{Lose: true}), func(t *testing.T, w *faultyWorld) {
		s := w.session()
		p := w.create(s)
		require.ErrorIs(t, s.Delete(t.Context(), "q", p, driver.Changed), driver.ErrUnavailable)
		assert.Zero(t, w.nodes())
		require.ErrorIs(t, s.Delete(t.Context(), "q", p, driver.Changed), driver.ErrGone)
	})
}

func TestRepeatedDeleteIsSentTwice(t *testing.T) {
	inBubble(t, on(faults.StageRequest, faults.OpDelete, faults.Fault{Repeat: true}), func(t *testing.T, w *faultyWorld) {
		s := w.session()
		require.NoError(t, s.Delete(t.Context(), "q", w.create(s), driver.Changed))
		assert.EqualValues(t, 2, w.store.Stats().Requests[faults.OpDelete])
		assert.Equal(t, 1, w.faults.Stats().Repeated)
	})
}

func TestRepeatDoesNotCountForACreate(t *testing.T) {
	inBubble(t, on(faults.StageRequest, faults.OpCreate, faults.Fault{Repeat: true}), func(t *testing.T, w *faultyWorld) {
		w.create(w.session())
		assert.Equal(t, 1, w.nodes())
		assert.Zero(t, w.faults.Stats().Repeated)
	})
}

func TestDoneClosesBeforeTheNodesOfAnEndedSessionGo(t *testing.T) {
	inBubbles(t, faults.OpList, faults.Fault{EndSession: true}, func(t *testing.T, w *faultyWorld) {
		s := w.session()
		p := w.create(s)
		gone, err := w.eyes.Watch(t.Context(), "q", p)
		require.NoError(t, err)
		var knew error
		go func() {
			<-gone.C
			knew = s.Err()
		}()
		_, err = s.List(t.Context(), "q")
		require.ErrorIs(t, err, driver.ErrSessionEnded)
		synctest.Wait()
		require.ErrorIs(t, knew, driver.ErrSessionEnded)
		require.True(t, isClosed(s.Done()))
		assert.Zero(t, w.nodes())
		assert.NoError(t, s.Close())
		assert.Equal(t, 1, w.faults.Stats().SessionsEnded)
	})
}

func TestEndSessionEndsOneAndEndSessionsAll(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, w *faultyWorld) {
		a, b, c := w.session(), w.session(), w.session()
		require.NoError(t, w.faults.EndSession(2))
		require.NoError(t, a.Err())
		require.ErrorIs(t, b.Err(), driver.ErrSessionEnded)
		require.NoError(t, w.faults.EndSession(99), "there is none")
		w.create(a)
		w.faults.EndSessions()
		require.ErrorIs(t, a.Err(), driver.ErrSessionEnded)
		require.ErrorIs(t, c.Err(), driver.ErrSessionEnded)
		assert.Zero(t, w.nodes())
		w.create(w.session())
	})
}

func TestConnectThatFailsLeavesNoSession(t *testing.T) {
	inBubbles(t, faults.OpConnect, faults.Fault{Lose: true}, func(t *testing.T, w *faultyWorld) {
		_, err := w.faults.Connect(t.Context())
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Equal(t, 1, w.store.Stats().Sessions, "only that of the test")
		w.create(w.session())
	})
}

func TestConnectWhoseCtxHadEndedHasNoNumber(t *testing.T) {
	var asked []int
	decide := func(_ context.Context, r faults.Request) faults.Fault {
		asked = append(asked, r.Session)
		return faults.Fault{}
	}
	inBubble(t, decide, func(t *testing.T, w *faultyWorld) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.faults.Connect(gone)
		require.ErrorIs(t, err, context.Canceled)
		w.connect(w.faults)
		require.Equal(t, []int{1, 1}, asked, "the request and the reply of the only one")
	})
}

func TestWatchesThatEndWithTheirSessionAreNotDecidedOn(t *testing.T) {
	decide := func(_ context.Context, r faults.Request) faults.Fault {
		if r.Stage == faults.StageNews {
			t.Errorf("asked for %v", r)
		}
		return faults.Fault{}
	}
	// Repeat, because a race would show only in a few of the runs.
	for range 200 {
		inBubble(t, decide, func(t *testing.T, w *faultyWorld) {
			s := w.connect(w.faults)
			watch, err := s.WatchQueue(t.Context(), "q")
			require.NoError(t, err)
			require.NoError(t, w.faults.EndSession(1))
			<-watch.C
		})
	}
}

func TestConnectGivenUpLeavesNoSession(t *testing.T) {
	inBubbles(t, faults.OpConnect, faults.Fault{Delay: time.Minute}, func(t *testing.T, w *faultyWorld) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := w.faults.Connect(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(began))
		synctest.Wait()
		assert.Equal(t, 1, w.store.Stats().Sessions, "only that of the test")
	})
}

func TestSessionMayEndAsSoonAsItIsMade(t *testing.T) {
	inBubble(t, on(faults.StageReply, faults.OpConnect, faults.Fault{EndSession: true}), func(t *testing.T, w *faultyWorld) {
		require.ErrorIs(t, w.session().Err(), driver.ErrSessionEnded)
	})
}

func TestCloseEndsRequestsOnTheirWay(t *testing.T) {
	keep := func(ctx context.Context, r faults.Request) faults.Fault {
		if r.Op != faults.OpConnect {
			<-ctx.Done()
		}
		return faults.Fault{}
	}
	inBubble(t, keep, func(t *testing.T, w *faultyWorld) {
		s := w.session()
		failed := make(chan error)
		go func() {
			_, err := s.Create(t.Context(), "q", newNode())
			failed <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-failed, driver.ErrSessionEnded)
		assert.Zero(t, w.nodes())
	})
}

func TestCloseWaitsForGoroutinesOfItsSession(t *testing.T) {
	var left sync.WaitGroup
	dawdle := func(ctx context.Context, r faults.Request) faults.Fault {
		if r.Op == faults.OpList {
			left.Add(1)
			defer left.Done()
			<-ctx.Done()
			time.Sleep(time.Second)
		}
		return faults.Fault{}
	}
	inBubble(t, dawdle, func(t *testing.T, w *faultyWorld) {
		s := w.session()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.List(ctx, "q")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		began := time.Now()
		require.NoError(t, s.Close())
		assert.Equal(t, time.Second, time.Since(began))
		left.Wait()
	})
}

func TestSessionDescribesTheDriversSession(t *testing.T) {
	s, err := faults.New(memdriver.New(), nil).Connect(t.Context())
	require.NoError(t, err)
	defer s.Close()
	assert.Equal(t, "memory", driver.Inspect(s).Describe().Server)

	plain, err := faults.New(undescribed{memdriver.New()}, nil).Connect(t.Context())
	require.NoError(t, err)
	defer plain.Close()
	assert.Zero(t, driver.Inspect(plain).Describe())
	assert.True(t, driver.Inspect(s).OnHeartbeat(func(_, _ time.Duration) {}))
	assert.False(t, driver.Inspect(plain).OnHeartbeat(func(_, _ time.Duration) {}))
}

// undescribed hides its sessions' optional methods.
type undescribed struct{ driver.Connector }

func (u undescribed) Connect(ctx context.Context) (driver.Session, error) {
	s, err := u.Connector.Connect(ctx)
	return struct{ driver.Session }{s}, err
}
