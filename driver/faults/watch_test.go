package faults_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// scripted is a session whose only watch is controlled by the test.
type scripted struct {
	driver.Session // nil, because no test calls its methods

	news    chan driver.Cause
	stops   atomic.Int64 // how often Stop was called
	done    chan struct{}
	deleted []driver.Place
}

func newScripted() *scripted {
	return &scripted{news: make(chan driver.Cause, 1), done: make(chan struct{})}
}

var scriptedPlace = driver.Place{Node: driver.Node{Name: "h-W-0000000007", Seq: 7}, Token: 8}

func (s *scripted) watch() driver.Watch {
	return driver.NewWatch(s.news, func() { s.stops.Add(1) })
}

func (s *scripted) Create(context.Context, string, driver.NodeSpec) (driver.Joined, error) {
	ahead := []driver.Node{{Name: "h-W-0000000006", Seq: 6}}
	return driver.Joined{Place: scriptedPlace, Known: true, Ahead: ahead, Watch: s.watch()}, nil
}

func (s *scripted) Watch(context.Context, string, driver.Place, ...driver.Node) (driver.Watch, error) {
	return s.watch(), nil
}

func (s *scripted) WatchQueue(context.Context, string) (driver.Watch, error) {
	return s.watch(), nil
}

func (s *scripted) Delete(_ context.Context, _ string, p driver.Place, _ driver.Cause) error {
	s.deleted = append(s.deleted, p)
	return nil
}

func (s *scripted) Done() <-chan struct{} { return s.done }

func (s *scripted) Err() error {
	if isClosed(s.done) {
		return driver.ErrSessionEnded
	}
	return nil
}

func (s *scripted) Close() error {
	if !isClosed(s.done) {
		close(s.done)
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func hears(w driver.Watch) string {
	synctest.Wait()
	select {
	case cause, open := <-w.C:
		if !open {
			return "end"
		}
		return cause.String()
	default:
		return ""
	}
}

var arming = map[string]func(driver.Session) (driver.Watch, error){
	"create": func(s driver.Session) (driver.Watch, error) {
		j, err := s.Create(context.Background(), "q", driver.NodeSpec{Prefix: writer})
		return j.Watch, err
	},
	"watch": func(s driver.Session) (driver.Watch, error) {
		return s.Watch(context.Background(), "q", scriptedPlace, driver.Node{Name: "h-W-0000000006", Seq: 6})
	},
	"watch-queue": func(s driver.Session) (driver.Watch, error) {
		return s.WatchQueue(context.Background(), "q")
	},
}

func watching(t *testing.T, plan faults.Plan, test func(t *testing.T, in *scripted, s driver.Session, w driver.Watch)) {
	armingAfter(t, plan, func(*scripted) {}, test)
}

func armingAfter(
	t *testing.T, plan faults.Plan, before func(in *scripted), test func(t *testing.T, in *scripted, s driver.Session, w driver.Watch),
) {
	for name, arm := range arming {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, s := scriptedSession(t, plan)
				before(in)
				w, err := arm(s)
				require.NoError(t, err)
				test(t, in, s, w)
				require.NoError(t, s.Close())
			})
		})
	}
}

func scriptedSession(t *testing.T, plan faults.Plan) (*scripted, driver.Session) {
	in := newScripted()
	s, err := faults.New(connectorFunc(func(context.Context) (driver.Session, error) { return in, nil }), plan).
		Connect(t.Context())
	require.NoError(t, err)
	return in, s
}

type connectorFunc func(ctx context.Context) (driver.Session, error)

func (f connectorFunc) Connect(ctx context.Context) (driver.Session, error) { return f(ctx) }

func onNews(f func(ctx context.Context, cause driver.Cause) faults.Fault) faults.Plan {
	return func(ctx context.Context, r faults.Request) faults.Fault {
		if r.Stage == faults.StageNews {
			return f(ctx, r.Cause)
		}
		return faults.Fault{}
	}
}

func onCause(cause driver.Cause, f faults.Fault) faults.Plan {
	return onNews(func(_ context.Context, is driver.Cause) faults.Fault {
		if is == cause {
			return f
		}
		return faults.Fault{}
	})
}

func TestNewsCanBeLate(t *testing.T) {
	late := onNews(func(context.Context, driver.Cause) faults.Fault { return faults.Fault{Delay: time.Second} })
	watching(t, late, func(t *testing.T, in *scripted, _ driver.Session, w driver.Watch) {
		for _, want := range []string{"released", "end"} {
			if want == "end" {
				close(in.news)
			} else {
				in.news <- driver.Released
			}
			time.Sleep(time.Second - 1)
			assert.Empty(t, hears(w))
			time.Sleep(time.Nanosecond)
			assert.Equal(t, want, hears(w))
		}
	})
}

func TestReleasedOnItsWayIsReplacedByAnEnd(t *testing.T) {
	watching(t, onCause(driver.Released, faults.Fault{Delay: time.Second}),
		func(t *testing.T, in *scripted, _ driver.Session, w driver.Watch) {
			in.news <- driver.Released
			synctest.Wait()
			close(in.news)
			time.Sleep(time.Second)
			assert.Equal(t, "end", hears(w), "the driver knew that the node has gone")
		})
}

func TestLostReleasedEndsTheWatch(t *testing.T) {
	watching(t, onCause(driver.Released, faults.Fault{Lose: true}),
		func(t *testing.T, in *scripted, _ driver.Session, w driver.Watch) {
			in.news <- driver.Released
			assert.Equal(t, "end", hears(w))
			assert.NotZero(t, in.stops.Load())
		})
}

func TestEndOfAWatchCannotBeLost(t *testing.T) {
	watching(t, onCause(driver.Changed, faults.Fault{Lose: true}),
		func(t *testing.T, in *scripted, _ driver.Session, w driver.Watch) {
			close(in.news)
			assert.Equal(t, "end", hears(w))
		})
}

func TestWatchThatEndsEarlyIsStopped(t *testing.T) {
	plan := func(_ context.Context, r faults.Request) faults.Fault {
		return faults.Fault{EndWatchAfter: time.Second}
	}
	watching(t, plan, func(t *testing.T, in *scripted, _ driver.Session, w driver.Watch) {
		time.Sleep(time.Second - 1)
		assert.Empty(t, hears(w))
		assert.Zero(t, in.stops.Load())
		time.Sleep(time.Nanosecond)
		assert.Equal(t, "end", hears(w))
		assert.NotZero(t, in.stops.Load())
		in.news <- driver.Released
		assert.Equal(t, "end", hears(w))
	})
}

func TestStopEndsNewsOnTheirWay(t *testing.T) {
	var asked, ended atomic.Int64
	keep := onNews(func(ctx context.Context, _ driver.Cause) faults.Fault {
		asked.Add(1)
		<-ctx.Done()
		ended.Add(1)
		return faults.Fault{}
	})
	watching(t, keep, func(t *testing.T, in *scripted, s driver.Session, w driver.Watch) {
		asked.Store(0)
		ended.Store(0)
		in.news <- driver.Released
		assert.Empty(t, hears(w))
		assert.EqualValues(t, 1, asked.Load())
		w.Stop()
		assert.NotEqual(t, "released", hears(w))
		assert.EqualValues(t, 1, ended.Load())
		close(in.news)
		synctest.Wait()
		assert.EqualValues(t, 1, asked.Load(), "nothing of a stopped watch is on its way")
	})
}

func TestCloseWaitsForNewsOnTheirWay(t *testing.T) {
	dawdle := onNews(func(ctx context.Context, _ driver.Cause) faults.Fault {
		<-ctx.Done()
		time.Sleep(time.Second)
		return faults.Fault{}
	})
	watching(t, dawdle, func(t *testing.T, in *scripted, s driver.Session, _ driver.Watch) {
		in.news <- driver.Released
		synctest.Wait()
		began := time.Now()
		require.NoError(t, s.Close())
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestNothingIsReleasedOnceTheSessionHasEnded(t *testing.T) {
	var in *scripted
	end := onNews(func(_ context.Context, cause driver.Cause) faults.Fault {
		if cause == driver.Released {
			close(in.done)
		}
		return faults.Fault{}
	})
	armingAfter(t, end, func(s *scripted) { in = s }, func(t *testing.T, in *scripted, _ driver.Session, w driver.Watch) {
		in.news <- driver.Released
		<-in.done
		assert.Equal(t, "end", hears(w))
	})
}

func TestEndOfTheSessionEndsWatchesWhateverThePlanSays(t *testing.T) {
	keep := onNews(func(ctx context.Context, _ driver.Cause) faults.Fault {
		<-ctx.Done()
		return faults.Fault{}
	})
	for _, news := range []func(chan driver.Cause){
		func(chan driver.Cause) {},
		func(c chan driver.Cause) { c <- driver.Released },
		func(c chan driver.Cause) { close(c) },
	} {
		watching(t, keep, func(t *testing.T, in *scripted, s driver.Session, w driver.Watch) {
			news(in.news)
			assert.Empty(t, hears(w), "its news are kept")
			require.NoError(t, in.Close())
			assert.Equal(t, "end", hears(w))
		})
	}
}

func TestWatchOfANodeThatHasGoneHasEndedWhenItIsReturned(t *testing.T) {
	plan := onNews(func(_ context.Context, cause driver.Cause) faults.Fault {
		t.Errorf("asked for an event with the cause %v", cause)
		return faults.Fault{}
	})
	armingAfter(t, plan, func(in *scripted) { close(in.news) }, func(t *testing.T, _ *scripted, _ driver.Session, w driver.Watch) {
		select {
		case _, open := <-w.C:
			assert.False(t, open)
		default:
			assert.Fail(t, "it has not ended")
		}
	})
}

func TestCreateMayLoseItsListAndItsWatch(t *testing.T) {
	for _, f := range []faults.Fault{{}, {DropAhead: true}, {DropWatch: true}, {DropAhead: true, DropWatch: true}} {
		synctest.Test(t, func(t *testing.T) {
			in := newScripted()
			c := faults.New(connectorFunc(func(context.Context) (driver.Session, error) { return in, nil }),
				on(faults.StageReply, faults.OpCreate, f))
			s, err := c.Connect(t.Context())
			require.NoError(t, err)
			j, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: writer})
			require.NoError(t, err)
			assert.Equal(t, scriptedPlace, j.Place)
			assert.Equal(t, !f.DropAhead, j.Known)
			assert.Equal(t, !f.DropAhead, len(j.Ahead) == 1)
			assert.Equal(t, !f.DropWatch, j.Watch.C != nil)
			assert.Equal(t, f.DropWatch, in.stops.Load() > 0, "it is stopped")
			assert.Equal(t, f.DropAhead, c.Stats().AheadsDropped == 1)
			assert.Equal(t, f.DropWatch, c.Stats().WatchesDropped == 1)
			require.NoError(t, s.Close())
		})
	}
}

// Without the reply the caller gets no watch, so the driver's watch must be
// stopped.
func TestWatchWhoseReplyIsLostIsStopped(t *testing.T) {
	for name, arm := range arming {
		synctest.Test(t, func(t *testing.T) {
			in, s := scriptedSession(t, func(_ context.Context, r faults.Request) faults.Fault {
				return faults.Fault{Lose: r.Stage == faults.StageReply && r.Op != faults.OpConnect && r.Op != faults.OpCleanUp}
			})
			_, err := arm(s)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			synctest.Wait()
			assert.NotZero(t, in.stops.Load(), name)
			assert.Equal(t, name == "create", len(in.deleted) == 1)
			require.NoError(t, s.Close())
		})
	}
}

type limited struct{ *scripted }

func (limited) Read(context.Context, string, string) (driver.NodeInfo, error) {
	return driver.NodeInfo{}, errors.ErrUnsupported
}

// An unsupported method always returns ErrUnsupported, whatever the plan says.
func TestUnsupportedMethodIsNeverLost(t *testing.T) {
	var inner driver.Session
	c := faults.New(connectorFunc(func(context.Context) (driver.Session, error) { return inner, nil }),
		func(_ context.Context, r faults.Request) faults.Fault {
			lost := r.Op == faults.OpRead && r.Stage == faults.StageReply || r.Op == faults.OpWalk || r.Op == faults.OpRemove ||
				r.Op == faults.OpSetValue || r.Op == faults.OpValue
			return faults.Fault{Lose: lost}
		})
	for _, inner = range []driver.Session{newScripted(), limited{newScripted()}} {
		s, err := c.Connect(t.Context())
		require.NoError(t, err)
		_, err = driver.Inspect(s).Read(t.Context(), "q", scriptedPlace.Name)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, err = driver.Inspect(s).Walk(t.Context(), "")
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, driver.Inspect(s).Remove(t.Context(), "q", scriptedPlace), errors.ErrUnsupported)
		require.ErrorIs(t, driver.Inspect(s).SetValue(t.Context(), "q", scriptedPlace, nil), errors.ErrUnsupported)
		_, _, err = driver.Inspect(s).Value(t.Context(), "q")
		require.ErrorIs(t, err, errors.ErrUnsupported)
		assert.Zero(t, driver.Inspect(s).Describe())
		require.NoError(t, s.Close())
	}
}
