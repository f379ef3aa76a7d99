package session

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// slowStore is a store that answers after the session timeout.
type slowStore struct{ Store }

func (slowStore) Open(context.Context) error { return nil }

func (slowStore) Begin(_ context.Context, _ string, timeout time.Duration) error {
	time.Sleep(2 * timeout)
	return nil
}

func (slowStore) Close() error { return nil }

// A slow database must not look like an error that stays.
func TestConnectWithALateAnswerMayBeRepeated(t *testing.T) {
	_, err := Connect(t.Context(), "slow", slowStore{}, 10*time.Millisecond)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded) {
		t.Errorf("Connect returned %v, want an error that matches ErrUnavailable, and not ErrSessionEnded", err)
	}
}

// unansweredStore is a store that answers no Create, and two of three calls of Cancel.
type unansweredStore struct {
	Store
	mu      sync.Mutex
	cancels int
	removed map[string]bool
}

func (*unansweredStore) Open(context.Context) error { return nil }

func (*unansweredStore) Begin(context.Context, string, time.Duration) error { return nil }

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

func (*unansweredStore) End(context.Context, string) error { return nil }

func (*unansweredStore) Close() error { return nil }

// TestOrphansAreRemovedOneByOne loses the answers to ten calls of Create. Their
// nodes are removed, although never more than two removals in a row succeed. On a
// slow network the time limit of a request has the same effect: it is enough for
// some removals.
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
