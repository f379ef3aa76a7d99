package history

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// A hasty session's Create hides the nodes ahead, so every contender is granted
// at once.
type hasty struct{ driver.Session }

func (s hasty) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Known, j.Ahead = true, nil
	return j, err
}

// A blind session's List omits the node ahead of its own.
type blind struct {
	driver.Session
	mu  sync.Mutex
	own map[string]bool
}

func (s *blind) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[j.Name] = true
	j.Watch.Stop()
	return driver.Joined{Place: j.Place}, err
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

// A backwards session gives each new node a lower token than the last one.
type backwards struct{ driver.Session }

func (s backwards) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Token = 1<<40 - j.Token
	return j, err
}

// A late session reports its end a second too late.
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

// Close also waits for the goroutine that newLate has started.
func (s late) Close() error {
	err := s.Session.Close()
	<-s.done
	return err
}

func (s late) Err() error {
	select {
	case <-s.done:
		return s.Session.Err()
	default:
		return nil
	}
}

// A demoting session downgrades a node by moving it to the end of the queue.
type demoting struct{ driver.Session }

func (s demoting) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	after, err := s.Create(ctx, queue, driver.NodeSpec{Prefix: prefix, Data: []byte("again")})
	if err != nil {
		return p, err
	}
	return after.Place, s.Delete(ctx, queue, p, driver.Changed)
}

// A clumsy session also removes the last node of the queue in each Delete.
type clumsy struct {
	driver.Session
	store *memdriver.Store
}

func (s clumsy) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if nodes, err := s.List(ctx, queue); err == nil && len(nodes) > 1 {
		s.store.Faults().RemoveNode(queue, nodes[len(nodes)-1].Name)
	}
	return s.Session.Delete(ctx, queue, p, why)
}

// A hurried session returns from Delete while the node still exists.
type hurried struct{ driver.Session }

func (s hurried) Delete(_ context.Context, queue string, p driver.Place, why driver.Cause) error {
	time.AfterFunc(300*time.Millisecond, func() { _ = s.Session.Delete(context.Background(), queue, p, why) })
	return nil
}

// A twofold session sometimes creates two nodes, like a driver that repeats an
// unanswered request.
type twofold struct{ driver.Session }

func (s twofold) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	if err == nil && j.Seq%10 == 0 {
		n.Data = append(n.Data, ' ')
		return s.Session.Create(ctx, queue, n)
	}
	return j, err
}

// A borrowing session gives the same token to two successive nodes.
type borrowing struct{ driver.Session }

func (s borrowing) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Token = (j.Token + 1) / 2
	return j, err
}

// A silent session has watches that never fire.
type silent struct{ driver.Session }

func (s silent) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	return s.Session.Create(ctx, queue, n)
}

func (s silent) Watch(context.Context, string, driver.Place, ...driver.Node) (driver.Watch, error) {
	return driver.NewWatch(make(chan driver.Cause), nil), nil
}

// A lazy session confirms a Delete but keeps the node.
type lazy struct{ driver.Session }

func (s lazy) Delete(context.Context, string, driver.Place, driver.Cause) error { return nil }

// A forgetful session confirms each value but stores none.
type forgetful struct {
	driver.Session
	driver.Inspector
}

func (s forgetful) SetValue(context.Context, string, driver.Place, []byte) error { return nil }

type spoiler = func(*memdriver.Store, driver.Session) driver.Session

var brokenSessions = map[string]struct {
	spoil spoiler
	by    string // what shows the fault: calm, faulty or search
	says  string // text in a failing seed's report, if any
}{
	"two are let in": {func(_ *memdriver.Store, s driver.Session) driver.Session { return hasty{s} }, search, "behind"},
	"a predecessor is missed": {func(_ *memdriver.Store, s driver.Session) driver.Session {
		return &blind{Session: s, own: map[string]bool{}}
	}, search, "behind"},
	"tokens fall":                {func(_ *memdriver.Store, s driver.Session) driver.Session { return backwards{s} }, calm, "token"},
	"a token is given twice":     {func(_ *memdriver.Store, s driver.Session) driver.Session { return borrowing{s} }, calm, "token"},
	"a session's end comes late": {func(_ *memdriver.Store, s driver.Session) driver.Session { return newLate(s) }, faulty, ""},
	"a downgrade moves its node": {func(_ *memdriver.Store, s driver.Session) driver.Session { return demoting{s} }, calm, ""},
	"others' nodes are deleted":  {func(st *memdriver.Store, s driver.Session) driver.Session { return clumsy{s, st} }, search, ""},
	"unlock returns too early":   {func(_ *memdriver.Store, s driver.Session) driver.Session { return hurried{s} }, calm, "is there"},
	"one call has two nodes":     {func(_ *memdriver.Store, s driver.Session) driver.Session { return twofold{s} }, calm, ""},
	"wake-ups are lost":          {func(_ *memdriver.Store, s driver.Session) driver.Session { return silent{s} }, calm, "no end after"},
	"unlocking does nothing":     {func(_ *memdriver.Store, s driver.Session) driver.Session { return lazy{s} }, calm, "is there"},
	"values are forgotten":       {func(_ *memdriver.Store, s driver.Session) driver.Session { return forgetful{s, driver.Inspect(s)} }, "", "run again"},
}

const calm, faulty, search = "calm", "faulty", "search"

func TestABrokenSessionIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories of each broken session")
	}
	for name, c := range brokenSessions {
		if c.by == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			found := false
			for seed := *first; seed < *first+12 && !found; seed++ {
				synctest.Test(t, func(t *testing.T) {
					s := inMemoryStore(c.spoil)
					if c.by != faulty {
						s = s.calm()
					}
					h := newHistory(t, s.withDefaults(), seed)
					h.play()
					record := h.record("broken: "+name, fmt.Sprint("seed ", seed), h.wrong.all)
					record.Broken = 1
					record.save(t)
					if found = len(record.Wrong) > 0; found {
						t.Logf("seed %d: %s", seed, record.Wrong[0])
					}
				})
			}
			require.True(t, found || c.by == search)
		})
	}
}

func TestABrokenSessionIsDetectedByASeedThatIsNamed(t *testing.T) {
	for name, c := range brokenSessions {
		if c.says == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(200) {
				var r *run
				synctest.Test(t, func(t *testing.T) { r = play(t, seed, c.spoil) })
				r.saved = r.record.record("", "", r.all)
				if said := report(seed, r); len(r.saved.Wrong) > 0 && strings.Contains(r.saved.Wrong[0], c.says) {
					require.Contains(t, said, "again: go test ./internal/history -run=TestNoSeed -seeds=1 -seed="+fmt.Sprint(seed))
					require.Contains(t, said, "holds it")
					return
				}
			}
			t.Error("200 seeds do not detect the broken session")
		})
	}
}

// mute is a testing.TB that records errors instead of failing.
type mute struct {
	testing.TB
	text string
}

func (m *mute) Errorf(format string, args ...any) { m.text += fmt.Sprintf(format, args...) }

func TestARuleThatIsBrokenIsReportedAndSaved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(Directory, dir)
	c := &client{closed: &ending{span: span{1, 2}}}
	r := &recorder{clock: 4, attempts: []*attempt{{span: span{3, 4}, client: c, queue: "q", mode: w}}}
	r.cause(cause{what: "fault of the test", slot: 2}, done(func() {}))
	r.contenders = []*contender{held(2, 1, span{1, 2})}
	m := &mute{TB: t}
	check(m, "made by hand", "a lock that is broken", r, nil)
	require.Contains(t, m.text, "the client was closed at 2")
	records, err := Records(dir)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, r.record("made by hand", "a lock that is broken", nil), records[0])
	require.Equal(t, []string{"faults", "client 2"}, []string{records[0].Notes[0].Row, records[0].Notes[1].Row})
	require.Equal(t, "fault of the test", records[0].Notes[0].Text)
	require.Equal(t, "#1 of q: exclusive, token 1", records[0].Notes[1].Text)
}
