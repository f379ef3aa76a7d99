package memdriver_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

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

func TestANodeThatCannotBeAddedIsRefused(t *testing.T) {
	st := memdriver.New()
	require.NoError(t, st.Faults().PutNode(queue, "readme", nil))
	require.NoError(t, st.Faults().PutNode(queue, "guest-0000000041", nil))
	for name, queue := range map[string]string{
		"guest-0000000007": queue, "readme": queue, "": queue, "x": "/bad",
	} {
		require.ErrorIs(t, st.Faults().PutNode(queue, name, nil), driver.ErrBadName, name)
	}
	require.NoError(t, connect(t, st).Close())
	require.Equal(t, 2, st.Stats().Nodes, "foreign nodes belong to no session")
	require.True(t, st.Faults().RemoveNode(queue, "readme"))
	require.False(t, st.Faults().RemoveNode(queue, "readme"))
}

func TestOnlyTheOwnerReleasesOrReplaces(t *testing.T) {
	st := memdriver.New()
	s, other := connect(t, st), connect(t, st)
	p := create(t, s)
	require.ErrorContains(t, other.Delete(background, queue, p, driver.Released), "belongs to another session")
	_, err := other.Replace(background, queue, p, "web2-R-")
	require.ErrorContains(t, err, "belongs to another session")
	for reader, foreign := range map[driver.Session]bool{s: false, other: true} {
		info, err := driver.Inspect(reader).Read(background, queue, p.Name)
		require.NoError(t, err)
		require.Equal(t, foreign, info.Foreign)
	}
	require.NoError(t, s.Delete(background, queue, p, driver.Released))
	queues, err := driver.Inspect(s).Walk(background, "")
	require.NoError(t, err)
	require.Empty(t, queues, "the queue is empty")
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
