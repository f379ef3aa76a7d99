package session

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// dyingStore is a fake store with one other session, which dies during the
// test.
type dyingStore struct {
	polledStore
	dead   time.Duration // time after which the other session has expired
	silent int           // number of Expire calls that go unanswered

	mu    sync.Mutex
	began time.Time
	calls int
	ended time.Duration // when the other session was ended; zero until then
}

func (s *dyingStore) Begin(context.Context, string, time.Duration) (Begun, error) {
	s.began, s.version = time.Now(), 1
	return Begun{}, nil
}

func (s *dyingStore) Beat(context.Context, string) (time.Duration, error) {
	return s.dead - time.Since(s.began), nil
}

func (s *dyingStore) Expire(ctx context.Context) (ended bool, err error) {
	s.mu.Lock()
	s.calls++
	silent, dead := s.calls <= s.silent, s.ended == 0 && time.Since(s.began) >= s.dead
	if !silent && dead {
		s.ended = time.Since(s.began)
	}
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return dead, nil
}

func (s *dyingStore) wait(t *testing.T, timeout time.Duration, watches bool) {
	session, err := Connect(t.Context(), "dying", s, timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if watches {
		own, ahead := driver.Node{Name: "a-W-0000000002", Seq: 2}, driver.Node{Name: "a-W-0000000001", Seq: 1}
		if _, err := session.Watch(t.Context(), "q", driver.Place{Node: own, Token: 2}, ahead); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Minute)
}

// A session must end a dead session although its own connection is silent. The
// first two Expire requests time out, after two and four seconds.
func TestDeadSessionEndsAlthoughAConnectionIsSilent(t *testing.T) {
	for _, timeout := range []time.Duration{4 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := &dyingStore{dead: 4 * time.Second, silent: 2}
			store.wait(t, timeout, true)
			if limit := 15 * time.Second; store.ended == 0 || store.ended > limit {
				t.Errorf("session timeout %v: the dead session was ended after %v (0 is never), want at most %v", timeout, store.ended, limit)
			}
		})
	}
}

// With a session timeout of an hour, heartbeats are seven minutes apart, so a
// waiter must also search for dead sessions between them.
func TestWaiterWithALongTimeoutEndsADeadSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &dyingStore{dead: 4 * time.Second}
		store.wait(t, time.Hour, true)
		if limit := store.dead + expirePause; store.ended == 0 || store.ended > limit {
			t.Errorf("the dead session was ended after %v (0 is never), want at most %v", store.ended, limit)
		}
	})
}

func TestOnlyAWaiterSearchesBetweenHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, waiter := range []struct {
			timeout time.Duration
			watches bool
		}{{time.Hour, false}, {10 * time.Second, true}} {
			store := &dyingStore{dead: time.Hour}
			store.wait(t, waiter.timeout, waiter.watches)
			if store.calls != 0 {
				t.Errorf("%+v: %d calls of Expire, want none", waiter, store.calls)
			}
		}
	})
}

// busyStore is a dyingStore with a third, live session whose deadline is always
// some minutes away.
type busyStore struct{ dyingStore }

func (s *busyStore) Beat(context.Context, string) (time.Duration, error) { return 6 * time.Minute, nil }

// A heartbeat reports the time until the next session expires. A waiter must
// search for dead sessions even before that time.
func TestAWaiterSearchesAlsoBeforeTheDeadlineThatAHeartbeatHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &busyStore{dyingStore{dead: 8 * time.Minute}}
		session, err := Connect(t.Context(), "busy", store, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		own, ahead := driver.Node{Name: "a-W-0000000002", Seq: 2}, driver.Node{Name: "a-W-0000000001", Seq: 1}
		if _, err := session.Watch(t.Context(), "q", driver.Place{Node: own, Token: 2}, ahead); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		if limit := store.dead + expirePause; store.ended == 0 || store.ended > limit {
			t.Errorf("the dead session was ended after %v (0 is never), want at most %v", store.ended, limit)
		}
	})
}
