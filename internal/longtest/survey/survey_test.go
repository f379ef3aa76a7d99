package survey

import (
	"os"
	"slices"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(zktest.Main(m))) }

func node(transaction int64) Node {
	return Node{Path: "/soak1/a/h-W-0000000001", Transaction: transaction, Session: 7}
}

func views(all ...View) Survey { return all }

func view(transactions ...int64) View {
	v := make(View)
	for _, t := range transactions {
		v[node(t)] = true
	}
	return v
}

func TestOnlyADifferenceThatStaysIsADivergence(t *testing.T) {
	oneHasMore := views(view(1), view(1, 2), view(1))
	equal := views(view(1), view(1), view(1))
	last := func(s Survey, n int, last Survey) []Survey {
		return append(slices.Repeat([]Survey{s}, n-1), last)
	}
	var busy []Survey // in each, one server shows a node that no other shows
	for i := range int64(Count) {
		busy = append(busy, views(view(), view(i), view()))
	}
	for name, c := range map[string]struct {
		surveys  []Survey
		diverged bool
	}{
		"one server shows a node":                {slices.Repeat([]Survey{oneHasMore}, Count), true},
		"one server shows another node":          {slices.Repeat([]Survey{views(view(1), view(2), view(1))}, Count), true},
		"one server shows nothing":               {slices.Repeat([]Survey{views(view(1), view(), view(1))}, Count), true},
		"all servers show a node that is left":   {slices.Repeat([]Survey{equal}, Count), false},
		"the servers agree in the last survey":   {last(oneHasMore, Count, equal), false},
		"a server catches up in the last survey": {last(oneHasMore, Count, views(view(1, 2), view(1, 2), view(1, 2))), false},
		"nodes come and go":                      {busy, false},
		"a server does not answer":               {slices.Repeat([]Survey{views(view(1), view(1, 2), nil)}, Count), false},
		"a server does not answer once":          {last(oneHasMore, Count, views(view(1), view(1, 2), nil)), false},
		"too few surveys":                        {slices.Repeat([]Survey{oneHasMore}, Count-1), false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.diverged, len(Differences(c.surveys)) > 0, Differences(c.surveys))
		})
	}
	require.Equal(t, []string{"servers [1] show /soak1/a/h-W-0000000001 (made by transaction 0x2, of session 0x7), servers [0 2] do not"},
		Differences(slices.Repeat([]Survey{oneHasMore}, Count)))
}

func TestSurveysEndWhenTheServersAgree(t *testing.T) {
	answers := []Survey{views(view(1), view()), views(view(2), view()), views(view(3), view(3)), views(view(4), view())}
	pauses := 0
	all := Repeat(func() Survey { return answers[pauses] }, func() bool { pauses++; return true })
	require.Equal(t, answers[:3], all)

	all = Repeat(func() Survey { return answers[0] }, func() bool { return true })
	require.Len(t, all, Count)
	all = Repeat(func() Survey { return answers[0] }, func() bool { return false })
	require.Len(t, all, 1, "the caller has stopped it")
}

// Servers that have not diverged must agree, although one may lag behind the
// leader.
func TestServersOfAnEnsembleAgree(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	conn := zktest.Dial(t, sessionTimeout, e.Addrs()...)
	for _, path := range []string{"/soak1", "/soak1/a"} {
		_, err := conn.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
		require.NoError(t, err)
	}
	path, err := conn.Create("/soak1/a/h-W-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)

	seen := Ask(e, []string{"/soak1/a", "/soak1/b"})
	require.Len(t, seen, 3)
	require.True(t, seen.Agree(), seen)
	require.Contains(t, seen.String(), "server 2 shows "+path)
}
