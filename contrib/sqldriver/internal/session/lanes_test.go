package session

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// laneStore is a fake store. In each queue, node 2 of this session is behind
// node 1 of another session.
type laneStore struct {
	quietStore
	removed chan struct{} // closed by the test to remove node 1
	err     error         // returned by Await and Delete on lanes
	lanes   int           // number of calls of Lane
	left    error         // argument of the last call of Leave
}

func (*laneStore) Enter(context.Context) (func(), error) { return func() {}, nil }

func (*laneStore) Server() string { return "fake" }

func (s *laneStore) nodes() []Row {
	own := Row{Name: "a-W-0000000002", Token: 2}
	select {
	case <-s.removed:
		return []Row{own}
	default:
		return []Row{{Name: "b-W-0000000001"}, own}
	}
}

func (s *laneStore) Create(context.Context, Op, string, string, []byte) (int64, []Row, error) {
	return 2, s.nodes(), nil
}

func (*laneStore) Delete(context.Context, Op, string, int64, driver.Cause) error { return nil }

func (s *laneStore) Look(_ context.Context, _ string, known map[string]int64) (map[string]Snapshot, error) {
	found := make(map[string]Snapshot)
	for queue := range known {
		found[queue] = Snapshot{Version: 1, Nodes: s.nodes()}
	}
	return found, nil
}

func (s *laneStore) Lane(context.Context) Lane {
	s.lanes++
	return fakeLane{s}
}

type fakeLane struct{ *laneStore }

func (l fakeLane) Create(ctx context.Context, op Op, queue, prefix string, data []byte) (int64, []Row, bool, error) {
	token, nodes, err := l.laneStore.Create(ctx, op, queue, prefix, data)
	return token, nodes, true, err
}

func (l fakeLane) Await(ctx context.Context, _, _ string, _, _ int64, _ []string) (now Snapshot, held bool, err error) {
	select {
	case <-l.removed:
	case <-time.After(time.Second):
	case <-ctx.Done():
		return now, false, ctx.Err()
	}
	now = Snapshot{Nodes: l.nodes()}
	return now, len(now.Nodes) == 2, l.err
}

func (l fakeLane) Delete(context.Context, Op, string, int64, driver.Cause) error { return l.err }

func (l fakeLane) Leave(err error) { l.left = err }

// connectLanes begins a session and creates a node with createOnLane.
func connectLanes(t *testing.T, store *laneStore, predecessor int) (*Session, driver.Joined) {
	store.removed = make(chan struct{})
	s, err := Connect(t.Context(), "fake", store, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return s, createOnLane(t, s, predecessor)
}

// createOnLane creates node 2 of the queue q, which waits for node 1 if
// predecessor is 0.
func createOnLane(t *testing.T, s *Session, predecessor int) driver.Joined {
	t.Helper()
	j, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Predecessor: func([]driver.Node) int { return predecessor }})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A goroutine that waits on a lane does not notify a watch that is armed after
// the wait began. The session must soon poll for this watch, although regular
// polls are a quarter of an hour apart while a lane waits.
func TestAWatchThatALaneDoesNotTellIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(laneStore)
		s, j := connectLanes(t, store, 0)
		defer s.Close()
		time.Sleep(time.Second / 2)
		j.Watch.Stop()
		w, err := s.Watch(t.Context(), "q", j.Place, j.Ahead...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second / 4)
		close(store.removed)
		start := time.Now()
		<-w.C
		if d := time.Since(start); d > time.Second {
			t.Errorf("the watch is told after %v", d)
		}
	})
}

func TestASessionDoesWithoutLanesIfAWaitFindsThatOneHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &laneStore{err: ErrMoved}
		s, _ := connectLanes(t, store, 0)
		defer s.Close()
		time.Sleep(2 * time.Second)
		checkNoLanes(t, store, s)
	})
}

func TestASessionDoesWithoutLanesIfADeletionFindsThatOneHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &laneStore{err: ErrMoved}
		s, j := connectLanes(t, store, -1)
		defer s.Close()
		if err := s.Delete(t.Context(), "q", j.Place, driver.Released); err != nil {
			t.Error(err)
		}
		checkNoLanes(t, store, s)
	})
}

// checkNoLanes checks that the session has closed its first lane and opens no
// other.
func checkNoLanes(t *testing.T, store *laneStore, s *Session) {
	t.Helper()
	synctest.Wait()
	if !errors.Is(store.left, ErrMoved) {
		t.Errorf("the connection is given back with the error %v", store.left)
	}
	createOnLane(t, s, 0)
	if store.lanes != 1 {
		t.Errorf("the session uses %d lanes, want 1", store.lanes)
	}
}
