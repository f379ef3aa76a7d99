package memdriver_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

func TestListShowsContendersOldestFirst(t *testing.T) {
	st := memdriver.New()
	a, b := connect(t, st), connect(t, st)
	require.Empty(t, list(t, a), "a queue that was never used")
	var want []driver.Node
	for i := range 5 {
		j := join(t, []driver.Session{a, b}[i%2])
		require.Equal(t, fmt.Sprintf("web1-W-%010d", i), j.Name)
		require.Equal(t, int64(i), j.Seq)
		require.True(t, j.Known)
		require.Equal(t, i == 0, j.Alone())
		require.ElementsMatch(t, want, j.Ahead)
		require.Zero(t, j.Watch, "no watch was wanted")
		want = append(want, j.Node)
	}
	require.Equal(t, want, list(t, b))
}

func TestTokensRiseOverTheWholeStore(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	last := int64(0)
	for i := range 50 {
		p, err := s.Create(background, fmt.Sprintf("q%d", i%3), newNode)
		require.NoError(t, err)
		require.Greater(t, p.Token, last)
		last = p.Token
		switch i % 4 {
		case 1:
			require.NoError(t, s.Delete(background, fmt.Sprintf("q%d", i%3), p.Place, driver.Changed))
		case 2:
			st.Faults().RemoveQueue(fmt.Sprintf("q%d", i%3))
		}
	}
}

// While sessions create nodes concurrently, successive lists of the queue must
// differ only by new nodes at the end, and tokens and sequences must increase
// along the queue.
func TestOrderHoldsUnderConcurrency(t *testing.T) {
	st := memdriver.New()
	var wg sync.WaitGroup
	var mu sync.Mutex
	tokens := make(map[string]int64)
	for range 8 {
		s := connect(t, st)
		wg.Go(func() {
			var before []driver.Node
			for range 50 {
				p, err := s.Create(background, queue, newNode)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				tokens[p.Name] = p.Token
				mu.Unlock()
				nodes, err := s.List(background, queue)
				if err != nil || len(nodes) <= len(before) {
					t.Errorf("list of %d nodes after one of %d: %v", len(nodes), len(before), err)
					return
				}
				for i := range before {
					if nodes[i] != before[i] {
						t.Errorf("%v appeared before %v", nodes[i], before[i])
					}
				}
				before = nodes
			}
		})
	}
	wg.Wait()
	nodes := list(t, connect(t, st))
	require.Len(t, nodes, 400)
	for i := 1; i < len(nodes); i++ {
		require.Less(t, nodes[i-1].Seq, nodes[i].Seq)
		require.Less(t, tokens[nodes[i-1].Name], tokens[nodes[i].Name])
	}
}

func TestSequencesGoOnInAnEmptyQueue(t *testing.T) {
	s := connect(t, memdriver.New())
	for i := range 5 {
		j := join(t, s)
		require.Equal(t, int64(i), j.Seq)
		require.True(t, j.Alone())
		require.NoError(t, s.Delete(background, queue, j.Place, driver.Changed))
	}
}

func TestRemovedQueueStartsOverWithAnotherEpoch(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	old := create(t, s)
	require.True(t, st.Faults().RemoveQueue(queue))
	require.False(t, st.Faults().RemoveQueue(queue))
	p := create(t, s)
	require.Equal(t, old.Name, p.Name)
	require.NotEqual(t, old.Epoch, p.Epoch)
	require.Greater(t, p.Token, old.Token)
	require.ErrorIs(t, s.Delete(background, queue, old, driver.Changed), driver.ErrGone, "a late Delete of the namesake")
	require.Equal(t, []driver.Node{p.Node}, list(t, s))
}

func TestEmptyQueuesAreForgottenOldestFirst(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	use := func(q string) driver.Place {
		p := createIn(t, s, q)
		require.NoError(t, s.Delete(background, q, p, driver.Changed))
		return p
	}
	held := createIn(t, s, "held")
	watched := watchQueue(t, s, "watched").C
	old := use("old")
	recent := use("recent")
	for i := range 20_000 {
		use(fmt.Sprintf("once/%d", i))
		if i%500 == 0 {
			use("recent")
		}
	}
	again := use("recent")
	require.Equal(t, recent.Epoch, again.Epoch)
	require.Equal(t, int64(41), again.Seq)
	again = use("old")
	require.NotEqual(t, old.Epoch, again.Epoch, "a queue that was idle for so long is kept for ever")
	require.Zero(t, again.Seq)
	require.LessOrEqual(t, st.Stats().Queues, 2048+2)
	require.NoError(t, s.Delete(background, "held", held, driver.Changed))
	select {
	case <-watched:
		t.Error("the watch of an empty queue was dropped with it")
	default:
	}
	use("watched")
	<-watched
}

func TestTheLastThousandEmptyQueuesAreRemembered(t *testing.T) {
	s := connect(t, memdriver.New())
	for round := range int64(2) {
		for i := range 1024 {
			q := fmt.Sprintf("order/%d", i)
			p := createIn(t, s, q)
			require.Equal(t, round, p.Seq, q)
			require.NoError(t, s.Delete(background, q, p, driver.Changed))
		}
	}
}

func TestSequencesRollOverWhenTheQueueIsEmpty(t *testing.T) {
	st := memdriver.New(memdriver.WithSequenceStart(97), memdriver.WithSequenceLimit(100))
	s := connect(t, st)
	a, b, c := create(t, s), create(t, s), create(t, s)
	require.Equal(t, int64(99), c.Seq)
	require.NoError(t, st.Faults().PutNode(queue, "readme", nil))
	for _, p := range []driver.Place{a, b, c} {
		_, err := s.Create(background, queue, newNode)
		require.ErrorIs(t, err, driver.ErrUnavailable, "while %d older nodes remain", len(list(t, s)))
		require.NoError(t, s.Delete(background, queue, p, driver.Changed))
	}
	j := join(t, s)
	require.Equal(t, "web1-W-0000000000", j.Name)
	require.NotEqual(t, c.Epoch, j.Epoch)
	require.Greater(t, j.Token, c.Token)
	require.True(t, j.Alone())
	require.Equal(t, int64(1), create(t, s).Seq)
}

func TestDefaultLimitKeepsNamesParseable(t *testing.T) {
	const limit = 1e18 - 1<<20
	s := connect(t, memdriver.New(memdriver.WithSequenceStart(limit-1)))
	p := create(t, s)
	_, seq, ok := driver.ParseName(p.Name)
	require.True(t, ok, p.Name)
	require.Equal(t, int64(limit-1), seq)
	require.NoError(t, s.Delete(background, queue, p, driver.Changed))
	require.Zero(t, create(t, s).Seq)
}

func TestForeignNodes(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	require.NoError(t, st.Faults().PutNode(queue, "readme", []byte("hello")))
	require.Empty(t, list(t, s), "an unsequenced node is listed")
	first := join(t, s)
	require.True(t, first.Alone(), "an unsequenced node counts as a contender")

	require.NoError(t, st.Faults().PutNode(queue, "guest-0000000041", nil))
	next := join(t, s)
	require.Equal(t, int64(42), next.Seq)
	require.Equal(t, []string{first.Name, "guest-0000000041"}, namesOf(next.Ahead))
	require.Equal(t, []string{first.Name, "guest-0000000041", next.Name}, namesOf(list(t, s)))

	for name, queue := range map[string]string{
		"guest-0000000007": queue, "readme": queue, "": queue, "x": "/bad",
	} {
		require.ErrorIs(t, st.Faults().PutNode(queue, name, nil), driver.ErrBadName, name)
	}
	require.NoError(t, s.Close())
	require.Equal(t, []string{"guest-0000000041"}, namesOf(list(t, connect(t, st))), "foreign nodes belong to no session")
	require.True(t, st.Faults().RemoveNode(queue, "readme"))
	require.False(t, st.Faults().RemoveNode(queue, "readme"))
}

func namesOf(nodes []driver.Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

func TestDeleteRemovesItsNodeOnce(t *testing.T) {
	s := connect(t, memdriver.New())
	p, q := create(t, s), create(t, s)
	require.NoError(t, s.Delete(background, queue, p, driver.Changed))
	err := s.Delete(background, queue, p, driver.Changed)
	require.ErrorIs(t, err, driver.ErrGone)
	require.EqualError(t, err, `mem: delete "web1-W-0000000000" in "stock/42": node is gone`)
	require.ErrorIs(t, s.Delete(background, "no/such/queue", p, driver.Changed), driver.ErrGone)
	require.Equal(t, []driver.Node{q.Node}, list(t, s))
}

func TestReplaceKeepsThePlace(t *testing.T) {
	st := memdriver.New()
	s, other := connect(t, st), connect(t, st)
	before, p, after := create(t, s), create(t, s), create(t, other)
	r := s

	oldName, membership, own := watch(t, other, after, p.Node).C, watchQueue(t, other, queue).C, watch(t, other, after).C
	np, err := r.Replace(background, queue, p, "web1-R-")
	require.NoError(t, err)
	require.Equal(t, driver.Place{Node: driver.Node{Name: "web1-R-0000000001", Seq: 1, Epoch: p.Epoch}, Token: p.Token}, np)
	require.Equal(t, []driver.Node{before.Node, np.Node, after.Node}, list(t, other))
	<-oldName
	<-membership
	select {
	case <-own:
		t.Error("the watch of another node closed")
	default:
	}
	info, err := driver.Inspect(s).Read(background, queue, np.Name)
	require.NoError(t, err)
	require.Equal(t, p.Token, info.Token)
	require.Equal(t, "data", string(info.Data))

	again, err := r.Replace(background, queue, p, "web1-R-")
	require.NoError(t, err, "a repeat")
	require.Equal(t, np, again)
	_, err = other.Replace(background, queue, np, "web2-R-")
	require.ErrorContains(t, err, "belongs to another session")
	require.NoError(t, s.Delete(background, queue, p, driver.Changed), "Delete with the place before Replace")
	require.ErrorIs(t, s.Delete(background, queue, np, driver.Changed), driver.ErrGone)
	_, err = r.Replace(background, queue, np, "web1-R-")
	require.ErrorIs(t, err, driver.ErrGone)
	require.Equal(t, []driver.Node{before.Node, after.Node}, list(t, s))
}

func TestReadReturnsTheFactsAboutANode(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	data := []byte("mine")
	p, err := s.Create(background, queue, driver.NodeSpec{Prefix: prefix, Data: data})
	require.NoError(t, err)
	data[0] = 'X'
	r := driver.Inspect(s)
	info, err := r.Read(background, queue, p.Name)
	require.NoError(t, err)
	require.Equal(t, p.Node, info.Node)
	require.Equal(t, p.Token, info.Token)
	require.Equal(t, "mine", string(info.Data), "the caller's slice was kept")
	require.Equal(t, "session-1", info.Owner)
	require.False(t, info.Foreign)
	require.False(t, info.Created.IsZero())
	info.Data[0] = 'Y'
	info, err = r.Read(background, queue, p.Name)
	require.NoError(t, err)
	require.Equal(t, "mine", string(info.Data), "the store's slice was handed out")

	require.NoError(t, st.Faults().PutNode(queue, "readme", nil))
	info, err = r.Read(background, queue, "readme")
	require.NoError(t, err)
	require.Empty(t, info.Owner)
	require.True(t, info.Foreign)
	require.Nil(t, info.Data)
	_, err = r.Read(background, queue, "missing-0000000000")
	require.ErrorIs(t, err, driver.ErrGone)
}

func TestWalkFindsQueuesAtAndBelow(t *testing.T) {
	s := connect(t, memdriver.New())
	for _, q := range []string{"stock", "stock/42", "stock/1/a", "stocks", "orders", "empty"} {
		p := createIn(t, s, q)
		if q == "empty" {
			require.NoError(t, s.Delete(background, q, p, driver.Changed))
		}
	}
	for prefix, want := range map[string]string{
		"":          "orders stock stock/1/a stock/42 stocks",
		"stock":     "stock stock/1/a stock/42",
		"stock/42":  "stock/42",
		"stock/4":   "",
		"elsewhere": "",
	} {
		queues, err := driver.Inspect(s).Walk(background, prefix)
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(queues, " "), "at %q", prefix)
	}
	_, err := driver.Inspect(s).Walk(background, "stock/")
	require.ErrorIs(t, err, driver.ErrBadName)
}

func TestBadNamesDoNotReachTheStore(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	for name, call := range map[string]func() error{
		"create":        func() error { _, err := s.Create(background, "/q", newNode); return err },
		"create prefix": func() error { _, err := s.Create(background, queue, driver.NodeSpec{Prefix: "a/b-"}); return err },
		"list":          func() error { _, err := s.List(background, ""); return err },
		"watch":         func() error { _, err := s.Watch(background, "a//b", driver.Place{}); return err },
		"watch queue":   func() error { _, err := s.WatchQueue(background, ""); return err },
		"delete":        func() error { return s.Delete(background, "..", driver.Place{}, driver.Changed) },
		"replace": func() error {
			_, err := s.Replace(background, queue, driver.Place{}, "x")
			return err
		},
		"read": func() error { _, err := driver.Inspect(s).Read(background, "a/", "x"); return err },
	} {
		err := call()
		require.ErrorIs(t, err, driver.ErrBadName, name)
		require.ErrorContains(t, err, "mem: ", name)
	}
	require.Empty(t, st.Stats().Requests)
}

func TestStatsCountContentsAndRequests(t *testing.T) {
	st := memdriver.New()
	s := connect(t, st)
	p := create(t, s)
	list(t, s)
	watch(t, s, p)
	watchQueue(t, s, queue)
	stats := st.Stats()
	require.Equal(t, memdriver.Stats{Sessions: 1, Queues: 1, Nodes: 1, Watches: 2, Requests: stats.Requests}, stats)
	require.NoError(t, s.Delete(background, queue, p, driver.Changed))
	require.NoError(t, s.Close())
	stats = st.Stats()
	require.Equal(t, memdriver.Stats{Queues: 1, Requests: stats.Requests}, stats)
	for op, want := range map[faults.Op]int64{
		faults.OpCreate: 1, faults.OpList: 1, faults.OpWatch: 1, faults.OpWatchQueue: 1, faults.OpDelete: 1,
		faults.OpConnect: 0, faults.OpReplace: 0, faults.OpRead: 0, faults.OpWalk: 0, faults.OpRemove: 0, faults.OpSetValue: 0, faults.OpValue: 0, faults.OpCleanUp: 0, faults.OpClose: 1,
	} {
		require.Equal(t, want, stats.Requests[op], op.String())
	}
}
