package histories

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// hasty is a session whose Create reports that no node is ahead, so that the
// lock never waits.
type hasty struct{ driver.Session }

func (s hasty) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Known, j.Ahead = true, nil
	return j, err
}

// blind is a session whose lists leave out the node before its own.
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

// backwards is a session that gives each new node a lower token than the nodes
// before it.
type backwards struct{ driver.Session }

func (s backwards) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Token = 1<<40 - j.Token
	return j, err
}

// late is a session that reports its end long after the store may have granted
// the lock to another session.
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

// Close leaves no goroutine behind, because nothing of a session may outlive
// its Close.
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

// demoting is a session that moves a node to the end of the queue when it
// downgrades the node.
type demoting struct{ driver.Session }

func (s demoting) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	after, err := s.Create(ctx, queue, driver.NodeSpec{Prefix: prefix, Data: []byte("again")})
	if err != nil {
		return p, err
	}
	return after.Place, s.Delete(ctx, queue, p, driver.Changed)
}

// clumsy is a session that, when it deletes a node, also removes the last node
// of the queue.
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

// hurried is a session that confirms a Delete before the node is gone.
type hurried struct{ driver.Session }

func (s hurried) Delete(_ context.Context, queue string, p driver.Place, why driver.Cause) error {
	time.AfterFunc(300*time.Millisecond, func() { _ = s.Session.Delete(context.Background(), queue, p, why) })
	return nil
}

// forgetful is a session whose Create leaves the node behind if the call is
// cancelled.
type forgetful struct{ driver.Session }

func (s forgetful) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(context.WithoutCancel(ctx), queue, n)
	if ctx.Err() != nil {
		return driver.Joined{}, ctx.Err()
	}
	return j, err
}

// twofold is a session that in one of ten calls of Create makes two nodes and
// returns the second, like a driver that repeats a request whose reply was
// lost.
type twofold struct{ driver.Session }

func (s twofold) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	if err == nil && j.Seq%10 == 0 {
		n.Data = append(n.Data, ' ')
		return s.Session.Create(ctx, queue, n)
	}
	return j, err
}

// borrowing is a session that gives the same token to two nodes in a row.
type borrowing struct{ driver.Session }

func (s borrowing) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.Session.Create(ctx, queue, n)
	j.Token = (j.Token + 1) / 2
	return j, err
}

func TestABrokenLockIsFound(t *testing.T) {
	calm := plan{clients: 4, actors: 1, rounds: 8, faults: 20, closes: 5, calm: true}
	faulty := plan{clients: 4, actors: 1, rounds: 38, faults: 150, closes: 5}
	for name, c := range map[string]struct {
		plan  plan
		spoil spoiler
	}{
		"it never waits": {calm, func(_ *memdriver.Store, s driver.Session) driver.Session { return hasty{s} }},
		"it misses its predecessor": {calm, func(_ *memdriver.Store, s driver.Session) driver.Session {
			return &blind{Session: s, own: map[string]bool{}}
		}},
		"tokens fall":                           {calm, func(_ *memdriver.Store, s driver.Session) driver.Session { return backwards{s} }},
		"a token is given twice":                {calm, func(_ *memdriver.Store, s driver.Session) driver.Session { return borrowing{s} }},
		"a session's end comes late":            {faulty, func(_ *memdriver.Store, s driver.Session) driver.Session { return newLate(s) }},
		"a downgrade moves its node to the end": {calm, func(_ *memdriver.Store, s driver.Session) driver.Session { return demoting{s} }},
		"it deletes others' nodes":              {calm, func(st *memdriver.Store, s driver.Session) driver.Session { return clumsy{s, st} }},
		"unlock returns before it has":          {calm, func(_ *memdriver.Store, s driver.Session) driver.Session { return hurried{s} }},
		"a caller that gives up leaves a node":  {calm, func(_ *memdriver.Store, s driver.Session) driver.Session { return forgetful{s} }},
		"it stands in the queue twice":          {calm, func(_ *memdriver.Store, s driver.Session) driver.Session { return twofold{s} }},
	} {
		t.Run(name, func(t *testing.T) {
			const tries, enough = 12, 3
			c.plan.spoil = c.spoil
			for seed, found := uint64(0), 0; found < enough; seed++ {
				require.Less(t, seed, uint64(tries), "found in %d of that many histories", found)
				if wrong := verdict(c.plan.one(t, seed)); len(wrong) > 0 {
					found++
					t.Logf("history %d: %s", seed+1, wrong[0])
				}
			}
		})
	}
}

// silentTB stands for a test. It collects errors in place of failing.
type silentTB struct {
	testing.TB
	text string
}

func (m *silentTB) Errorf(format string, args ...any) { m.text += fmt.Sprintf(format, args...) }

func TestAHistoryWithoutAnOrderIsDrawn(t *testing.T) {
	spoil := func(_ *memdriver.Store, s driver.Session) driver.Session { return hasty{s} }
	r, _ := plan{clients: 3, actors: 1, rounds: 4, faults: 10, spoil: spoil}.one(t, 1)
	r.cause(cause{what: "fault of the test", slot: 2}, done(func() {}))
	page := judged(t, r, "Illegal")
	c := r.contenders[0]
	for _, want := range []string{
		"exclusive, token", // the text of an operation
		fmt.Sprintf("#%d of %s: %v, token %d", c.id, c.queue, c.mode, c.token), // the annotation that shows a hold
		fmt.Sprint(`"client `, c.client.slot, `"`),
		`"faults"`, "fault of the test", "client 2, queue",
	} {
		require.Contains(t, page, want)
	}
}

// judged checks that judge fails the test for the history of r, with a text
// that contains verdict, and that judge draws the history. judged returns the
// picture.
func judged(t *testing.T, r *recorder, verdict string) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("DLOCK_HISTORY_DIR", dir)
	m := &silentTB{TB: t}
	judge(m, "a lock that is broken", r, nil)
	require.Contains(t, m.text, verdict)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Contains(t, m.text, files[0].Name())
	page, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
	require.NoError(t, err)
	return string(page)
}

func TestARuleThatIsBrokenIsDrawn(t *testing.T) {
	c := &client{closed: &ending{span: span{1, 2}}}
	r := &recorder{clock: 4, attempts: []*attempt{{span: span{3, 4}, client: c, queue: "q", mode: w}}}
	judged(t, r, "the client was closed at 2")
}

// A search that does not end proves nothing, and so counts as a failure.
func TestASearchWithoutAnEndIsAFailure(t *testing.T) {
	defer func(was time.Duration) { searchLimit = was }(searchLimit)
	searchLimit = 20 * time.Millisecond
	r := &recorder{clock: 200}
	for id := 1; id <= 40; id++ {
		r.contenders = append(r.contenders, held(1, id, span{1, 100})) // readers, which can be granted the lock in any order
		h := r.contenders[id-1].handles[0]
		h.mode, r.contenders[id-1].mode = dlock.Shared, dlock.Shared
	}
	r.contenders[7].handles[0].answers = []seen{{span{101, 102}, 1, w}}
	judged(t, r, "Unknown")
}
