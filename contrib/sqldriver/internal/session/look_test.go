package session

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// polledStore is a fake store without notices. Each of its queues has the nodes
// 1 and 2.
type polledStore struct {
	quietStore
	mu      sync.Mutex
	version int64 // of all queues
	looks   []lookedAt
}

type lookedAt struct {
	at      time.Time
	queues  int
	changed bool // a queue had changed
}

func (*polledStore) Enter(context.Context) (func(), error) { return func() {}, nil }

func (s *polledStore) Look(_ context.Context, _ string, known map[string]int64) (map[string]Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	look := lookedAt{at: time.Now(), queues: len(known)}
	nodes := []Row{{Name: "a-W-0000000001"}, {Name: "a-W-0000000002", Token: 2}}
	found := make(map[string]Snapshot)
	for queue, version := range known {
		found[queue] = Snapshot{Version: s.version, Same: version == s.version, Nodes: nodes}
		look.changed = look.changed || version != s.version
	}
	s.looks = append(s.looks, look)
	return found, nil
}

// change raises the versions of all queues but keeps their nodes.
func (s *polledStore) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}

// take returns the calls of Look since take was last called.
func (s *polledStore) take() (looks []lookedAt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	looks, s.looks = s.looks, nil
	return looks
}

// Polls must become rare while nothing changes, and stop with the last watch.
func TestOneLookServesAllWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &polledStore{version: 1}
		s, err := Connect(t.Context(), "polled", store, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		own, ahead := driver.Node{Name: "a-W-0000000002", Seq: 2}, driver.Node{Name: "a-W-0000000001", Seq: 1}
		const queues = 5
		var stops []func()
		for i := range queues {
			w, err := s.Watch(t.Context(), fmt.Sprint("q", i), driver.Place{Node: own, Token: 2}, ahead)
			if err != nil {
				t.Fatal(err)
			}
			stops = append(stops, w.Stop)
		}
		store.take()
		began := time.Now()
		time.Sleep(time.Minute)
		store.change()
		time.Sleep(time.Minute)
		expectLooks(t, store.take(), began, queues)
		for _, stop := range stops {
			stop()
		}
		time.Sleep(longestLook)
		store.take()
		time.Sleep(time.Minute)
		if n := len(store.take()); n > 0 {
			t.Errorf("%d looks without a watch", n)
		}
	})
}

// expectLooks checks that each poll reads all queues, at the intervals
// documented at shortestLook.
func expectLooks(t *testing.T, looks []lookedAt, last time.Time, queues int) {
	t.Helper()
	changed, changes := last, 0
	for i, l := range looks {
		if l.queues != queues {
			t.Errorf("look %d asks for %d queues of %d", i, l.queues, queues)
		}
		want := min(max(shortestLook, last.Sub(changed)/8), longestLook)
		if pause := l.at.Sub(last); pause != want {
			t.Errorf("look %d comes after %v, want %v", i, pause, want)
		}
		last = l.at
		if l.changed {
			changed, changes = l.at, changes+1
		}
	}
	if changes != 1 {
		t.Errorf("the looks have seen %d changes, want 1", changes)
	}
}
