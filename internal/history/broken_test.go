package history

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// hasty says that every node is alone in its queue: a lock that never waits.
type hasty struct{ driver.Session }

func (s hasty) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.Session.Create(ctx, queue, prefix, data)
	p.Alone = true
	return p, err
}

// blind does not list the node before one of its own.
type blind struct {
	driver.Session
	mu  sync.Mutex
	own map[string]bool
}

func (s *blind) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.Session.Create(ctx, queue, prefix, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[p.Name] = true
	return p, err
}

func (s *blind) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.Session.List(ctx, queue)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(nodes) - 1; i > 0; i-- {
		if s.own[nodes[i].Name] && !s.own[nodes[i-1].Name] {
			return slices.Delete(nodes, i-1, i), err
		}
	}
	return nodes, err
}

// backwards has tokens that fall.
type backwards struct{ driver.Session }

func (s backwards) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.Session.Create(ctx, queue, prefix, data)
	p.Token = 1<<40 - p.Token
	return p, err
}

// late learns of its session's end when others may be in long since.
type late struct {
	driver.Session
	done chan struct{}
}

func newLate(s driver.Session) late {
	l := late{s, make(chan struct{})}
	go func() {
		<-s.Done()
		time.Sleep(time.Second)
		close(l.done)
	}()
	return l
}

func (s late) Done() <-chan struct{} { return s.done }

func (s late) Err() error {
	select {
	case <-s.done:
		return s.Session.Err()
	default:
		return nil
	}
}

// demoting loses the place in the queue when it downgrades.
type demoting struct{ driver.Session }

func (s demoting) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	after, err := s.Create(ctx, queue, prefix, []byte("again"))
	if err != nil {
		return p, err
	}
	return after, s.Delete(ctx, queue, p)
}

// clumsy deletes another node together with its own.
type clumsy struct {
	driver.Session
	store *memdriver.Store
}

func (s clumsy) Delete(ctx context.Context, queue string, p driver.Place) error {
	if nodes, err := s.List(ctx, queue); err == nil && len(nodes) > 1 {
		s.store.RemoveNode(queue, nodes[len(nodes)-1].Name)
	}
	return s.Session.Delete(ctx, queue, p)
}

type spoiler = func(*memdriver.Store, driver.Session) driver.Session

func TestABrokenLockIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		faults int
		spoil  spoiler
	}{
		"it never waits": {0, func(_ *memdriver.Store, s driver.Session) driver.Session { return hasty{s} }},
		"it misses its predecessor": {0, func(_ *memdriver.Store, s driver.Session) driver.Session {
			return &blind{Session: s, own: map[string]bool{}}
		}},
		"tokens fall":                 {0, func(_ *memdriver.Store, s driver.Session) driver.Session { return backwards{s} }},
		"a session's end comes late":  {300, func(_ *memdriver.Store, s driver.Session) driver.Session { return newLate(s) }},
		"a downgrade loses its place": {0, func(_ *memdriver.Store, s driver.Session) driver.Session { return demoting{s} }},
		"it deletes others' nodes":    {0, func(st *memdriver.Store, s driver.Session) driver.Session { return clumsy{s, st} }},
	} {
		t.Run(name, func(t *testing.T) {
			const tries = 12
			found := 0
			for seed := range uint64(tries) {
				r, _ := plan{clients: 4, actors: 1, rounds: 8 + c.faults/5, faults: c.faults, spoil: c.spoil}.one(t, seed)
				if !linearizable(r) {
					found++
				}
			}
			t.Logf("found in %d of %d histories", found, tries)
			require.Positive(t, found)
		})
	}
}

// mute keeps errors of the test that it stands for to itself.
type mute struct {
	testing.TB
	said string
}

func (m *mute) Errorf(format string, args ...any) { m.said += fmt.Sprintf(format, args...) }

func TestAHistoryWithoutAnOrderIsDrawn(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DLOCK_HISTORY_DIR", dir)
	spoil := func(_ *memdriver.Store, s driver.Session) driver.Session { return hasty{s} }
	r, _ := plan{clients: 3, actors: 1, rounds: 4, faults: 10, spoil: spoil}.one(t, 1)
	m := &mute{TB: t}
	judge(m, "a lock that never waits", r)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Contains(t, m.said, files[0].Name())
	page, err := os.ReadFile(dir + "/" + files[0].Name())
	require.NoError(t, err)
	require.True(t, strings.Contains(string(page), "exclusive, token"))
}
