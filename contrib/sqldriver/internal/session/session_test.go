package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// quietStore is a fake store for a session that only sends heartbeats.
type quietStore struct{ Store }

func (quietStore) Open(context.Context) error { return nil }

func (quietStore) Begin(context.Context, string, time.Duration) (Begun, error) { return Begun{}, nil }

func (quietStore) Beat(context.Context, string) (time.Duration, error) { return time.Hour, nil }

func (quietStore) Expire(context.Context) (bool, error) { return false, nil }

func (quietStore) Tidy(context.Context) (bool, error) { return false, nil }

func (quietStore) End(context.Context, string) error { return nil }

func (quietStore) Close() error { return nil }

type slowStore struct{ quietStore }

func (slowStore) Begin(_ context.Context, _ string, timeout time.Duration) (Begun, error) {
	time.Sleep(2 * timeout)
	return Begun{}, nil
}

// If the database is slow to answer, Connect must fail with a temporary error.
func TestConnectWithALateAnswerMayBeRepeated(t *testing.T) {
	_, err := Connect(t.Context(), "slow", slowStore{}, 10*time.Millisecond)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded) {
		t.Errorf("Connect returned %v, want an error that matches ErrUnavailable, and not ErrSessionEnded", err)
	}
}

// brokenStore is a fake store whose End returns err.
type brokenStore struct {
	quietStore
	err error
}

func (s brokenStore) End(context.Context, string) error { return s.err }

func TestAFailureOfCloseMatchesErrUnavailableAndSaysSoOnce(t *testing.T) {
	other := errors.New("permission denied")
	for _, want := range []error{other, fmt.Errorf("%w: connection reset", driver.ErrUnavailable)} {
		s, err := Connect(t.Context(), "broken", brokenStore{err: want}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Close()
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, want) {
			t.Errorf("error %v", err)
		}
		if n := strings.Count(fmt.Sprint(err), driver.ErrUnavailable.Error()); n != 1 {
			t.Errorf("the error says %d times that the store is unavailable: %v", n, err)
		}
	}
}

// unansweredStore answers no Create, and only every third Cancel.
type unansweredStore struct {
	quietStore
	mu      sync.Mutex
	cancels int
	removed map[string]bool
}

func (*unansweredStore) Enter(context.Context) (func(), error) { return func() {}, nil }

func (*unansweredStore) Create(context.Context, Op, string, string, []byte) (int64, []Row, error) {
	return 0, nil, driver.ErrUnavailable
}

func (s *unansweredStore) Cancel(_ context.Context, _ Op, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancels++; s.cancels%3 == 0 {
		return driver.ErrUnavailable
	}
	s.removed[string(data)] = true
	return nil
}

// On a slow network, a request may time out after it has removed only some of
// the orphans. Later requests must remove the rest.
func TestOrphansAreRemovedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unansweredStore{removed: make(map[string]bool)}
		s, err := Connect(t.Context(), "unanswered", store, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		const orphans = 10
		for i := range orphans {
			if _, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte{byte(i)}}); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("error %v", err)
			}
		}
		time.Sleep(time.Minute)
		store.mu.Lock()
		defer store.mu.Unlock()
		if len(store.removed) != orphans || store.cancels > 2*orphans {
			t.Errorf("%d of %d nodes were removed, by %d requests", len(store.removed), orphans, store.cancels)
		}
	})
}

// smallStore lets two callers make requests at a time, and each read takes a
// second.
type smallStore struct {
	quietStore
	slots chan struct{}
	mu    sync.Mutex
	busy  int
	most  int // largest number of concurrent requests
}

func (s *smallStore) Enter(ctx context.Context) (func(), error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *smallStore) read(ctx context.Context) error {
	s.mu.Lock()
	s.busy++
	s.most = max(s.most, s.busy)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
	}()
	if !Sleep(ctx, time.Second) {
		return ctx.Err()
	}
	return nil
}

func (s *smallStore) List(ctx context.Context, _, _ string) ([]Row, error) {
	return nil, s.read(ctx)
}

func (s *smallStore) Look(ctx context.Context, _ string, _ map[string]int64) (map[string]Snapshot, error) {
	return nil, s.read(ctx)
}

func (s *smallStore) Read(ctx context.Context, _, _, _ string) (driver.NodeInfo, error) {
	return driver.NodeInfo{}, s.read(ctx)
}

func (s *smallStore) Walk(ctx context.Context, _, _ string) ([]string, error) {
	return nil, s.read(ctx)
}

// At most three requests may run at once, two for callers and one poll, so that
// heartbeats find a free connection. The time spent waiting for a connection
// must not count towards a request's timeout.
func TestCallsLeaveConnectionsForHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &smallStore{slots: make(chan struct{}, 2)}
		s, err := Connect(t.Context(), "small", store, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		place := driver.Place{Node: driver.Node{Name: "a-W-0000000001", Seq: 1}}
		var all sync.WaitGroup
		for range 10 {
			for name, call := range map[string]func() error{
				"List":  func() error { _, err := s.List(t.Context(), "q"); return err },
				"Watch": func() error { _, err := s.Watch(t.Context(), "q", place); return err },
				"Read":  func() error { _, err := s.Read(t.Context(), "q", place.Name); return err },
				"Walk":  func() error { _, err := s.Walk(t.Context(), ""); return err },
			} {
				all.Go(func() {
					if err := call(); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
		}
		all.Wait()
		if most := cap(store.slots) + 1; store.most > most {
			t.Errorf("%d requests at once, want at most %d", store.most, most)
		}
	})
}

// untidyStore is a fake store whose Tidy removes one row per call.
type untidyStore struct {
	quietStore
	rows atomic.Int64
}

func (s *untidyStore) Tidy(context.Context) (more bool, err error) { return s.rows.Add(-1) > 0, nil }

func TestRowsAreRemovedWhileTheSessionLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(untidyStore)
		s, err := Connect(t.Context(), "untidy", store, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 3 {
			store.rows.Store(5)
			time.Sleep(tidyPause + time.Minute)
			if n := store.rows.Load(); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		}
	})
}

// silentStore never answers the first Tidy.
type silentStore struct {
	quietStore
	tidied atomic.Int64
}

func (s *silentStore) Tidy(ctx context.Context) (more bool, err error) {
	if s.tidied.Add(1) == 1 {
		<-ctx.Done()
	}
	return false, ctx.Err()
}

func TestConnectAndCleanUpsGoOnAfterATidyWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(silentStore)
		s, err := Connect(t.Context(), "silent", store, 4*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.Sleep(tidyPause + time.Minute)
		if n := store.tidied.Load(); n != 2 {
			t.Errorf("%d clean-ups, want 2", n)
		}
	})
}
