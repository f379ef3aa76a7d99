package survey

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(zktest.Main(m))) }

func shows(nodes ...string) view {
	v := make(view)
	for _, n := range nodes {
		v[n] = true
	}
	return v
}

func TestOnlyADifferenceThatStaysIsADivergence(t *testing.T) {
	one, two := shows("1"), shows("1", "2")
	oneHasMore, equal := []view{one, two, one}, []view{one, one, one}
	always := func(survey ...view) [][]view { return slices.Repeat([][]view{survey}, count) }
	inTheEnd := func(last ...view) [][]view { return append(always(oneHasMore...)[1:], last) }
	var busy [][]view // each with a node that one server shows
	for i := range count {
		busy = append(busy, []view{shows(), shows(string(rune('a' + i))), shows()})
	}
	for name, c := range map[string]struct {
		surveys  [][]view
		diverged bool
	}{
		"one server shows a node":                {always(oneHasMore...), true},
		"one server shows another node":          {always(one, shows("2"), one), true},
		"one server shows nothing":               {always(one, shows(), one), true},
		"all servers show a node that is left":   {always(equal...), false},
		"the servers agree in the last survey":   {inTheEnd(equal...), false},
		"a server catches up in the last survey": {inTheEnd(two, two, two), false},
		"nodes come and go":                      {busy, false},
		"a server does not answer":               {always(one, two, nil), false},
		"a server does not answer once":          {inTheEnd(one, two, nil), false},
		"too few surveys":                        {always(oneHasMore...)[1:], false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.diverged, len(differ(c.surveys)) > 0, differ(c.surveys)) })
	}
	require.Equal(t, []string{"2: the servers show it [0 8 0] times of 8"}, differ(always(oneHasMore...)))

	answers, asked := [][]view{oneHasMore, busy[0], equal, oneHasMore}, 0
	ask := func() []view { asked++; return answers[asked-1] }
	require.Equal(t, answers[:3], repeat(ask, func() {}), "until they agree")
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

	differences, last := Find(e, []string{"/soak1/a", "/soak1/b"})
	require.Empty(t, differences)
	require.Equal(t, 3, strings.Count(last, path))
}
