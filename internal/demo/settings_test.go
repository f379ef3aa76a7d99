package demo

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/dlock-go/dlock/memdriver"
)

func TestArgumentsThatAreNotValidAreUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-workers", "0"}, "-workers 0: must be from 1 to 1000"},
		{[]string{"-workers", "many"}, "-workers"},
		{[]string{"-processes", "2"}, "-processes 2: a store in memory belongs to one process"},
		{[]string{"-processes", "-1"}, "-processes -1: must be from 1 to 100"},
		{[]string{"-driver", "none", "-workers", "2", "-processes", "3"}, "-processes 3: there are only 2 workers"},
		{[]string{"-rounds", "1001"}, "-rounds"},
		{[]string{"-shared-ratio", "1.5"}, "-shared-ratio"},
		{[]string{"-shared-ratio", "NaN"}, "-shared-ratio"},
		{[]string{"-hold", "-1s"}, "-hold"},
		{[]string{"-timeout", "0"}, "-timeout"},
		{[]string{"-connect-timeout", "0s"}, "-connect-timeout"},
		{[]string{"-dsn", "localhost:6379"}, "-dsn needs the -driver of its store"},
		{[]string{"-driver", "mem", "-dsn", "zk://localhost"}, "-dsn needs the -driver of its store"},
		{[]string{"-lock", "/x"}, "bad name"},
		{[]string{"-lock", "a\x1b"}, `"a\x1b"`},
		{[]string{"-driver", "zk"}, "needs -dsn"},
		{[]string{"-driver", "none", "-dsn", "x"}, `unknown driver "none"`},
		{[]string{"-driver", "mem", "-dsn", "x?colour=red"}, `unknown parameter "colour"`},
		{[]string{"-colour"}, "-colour"},
		{[]string{"-fault", "sleep"}, "-fault sleep: must be pause, cut or kill"},
		{[]string{"-fault", "kill"}, "a store in memory dies with its process"},
		{[]string{"-fault", "pause", "-workers", "3"}, "-workers has no effect with -fault"},
		{[]string{"-fault", "cut", "-driver", "other", "-dsn", "x"}, "a connection of -driver other cannot be cut"},
		{[]string{"more"}, `unexpected argument "more"`},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, statusUsage, Main(t.Context(), c.args, &stdout, &stderr), "%q", c.args)
		assert.Contains(t, stderr.String(), c.says)
		assert.NotContains(t, stderr.String(), "\x1b")
		assert.Empty(t, stdout.String(), "%q", c.args)
	}
}

func TestHelpShowsAllFlags(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, statusOK, Main(t.Context(), []string{"-h"}, &stdout, &stderr))
	for _, flag := range []string{"-driver", "-dsn", "-lock", "-processes", "-workers", "-rounds", "-shared-ratio", "-hold", "-timeout", "-connect-timeout", "-seed", "-svg", "-fault"} {
		assert.Contains(t, stdout.String(), "  "+flag+" ")
	}
	assert.Empty(t, stderr.String())
}

func TestOnlyAStoreInMemoryIsForOneProcess(t *testing.T) {
	for _, c := range []struct {
		args      []string
		processes int
	}{
		{nil, 1},
		{[]string{"-driver", "other", "-dsn", "x"}, 3},
		{[]string{"-driver", "other", "-dsn", "x", "-workers", "2"}, 2},
		{[]string{"-driver", "other", "-dsn", "x", "-processes", "1"}, 1},
		{[]string{"-driver", "other", "-dsn", "x", "-processes", "7"}, 7},
	} {
		s, err := parse(c.args)
		require.NoError(t, err)
		assert.Equal(t, c.processes, s.Processes, "%q", c.args)
	}
}
