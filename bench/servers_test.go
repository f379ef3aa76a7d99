package main

import (
	"log"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/work"
	"github.com/dlock-go/dlock/internal/zktest"
)

// TestMain lets the test binary act as a child process, because bench starts
// its own executable again for each Go library.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-child" {
		if err := command(os.Args[1:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

func childOf(t *testing.T, c competitor) *child {
	t.Helper()
	cmd, err := c.command(t.TempDir())
	if c.kind == peer {
		zktest.RequirePeer(t, err)
	}
	require.NoError(t, err)
	started, err := startChild(cmd)
	require.NoError(t, err)
	t.Cleanup(started.stop)
	return started
}

func TestSessionsUseAllMembersOfAnEnsemble(t *testing.T) {
	t.Parallel()
	zktest.Require(t)
	e, err := startEnsemble(3)
	require.NoError(t, err)
	t.Cleanup(e.stop)
	for _, c := range filter(competitors(), setupNamed("three").hasCompetitor) {
		if c.kind == reference {
			continue // the bare requests have only one session
		}
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.kind == peer {
				t.Skip("most peers start a virtual machine")
			}
			child := childOf(t, c)
			before := mapped(e.members, read(t))
			p := work.Plan{Kind: work.Loop, Server: e.addr(), Path: "/bench/" + c.name, Sessions: 20, Contenders: 20, Millis: 1, Timeout: 30}
			require.NoError(t, child.prepare(p))
			used := 0
			for i, after := range mapped(e.members, read(t)) {
				if after.minus(before[i]).minus(e.members[i].cost).received > 0 {
					used++
				}
			}
			require.Greater(t, used, 1, "20 sessions choose one member by chance once in a billion runs")
			report, err := child.measure(p)
			require.NoError(t, err)
			require.Len(t, report.Counts, 20)
			require.NoError(t, child.end())
		})
	}
}

func read(t *testing.T) func(*zooKeeper) counters {
	return func(s *zooKeeper) counters {
		c, err := s.read()
		require.NoError(t, err)
		return c
	}
}

// Taking and releasing a free lock needs two requests, so the one-way delay
// occurs four times.
func TestDelayedServerDelaysEachRequestAndItsReply(t *testing.T) {
	t.Parallel()
	zktest.Require(t)
	const delay = 50 * time.Millisecond // far longer than a request takes without the delay
	s, err := startDelayed(delay)
	require.NoError(t, err)
	t.Cleanup(s.stop)
	child := childOf(t, competitors()[0])
	free, err := round(child, s, work.Plan{Kind: work.Loop, Path: "/bench/free", Sessions: 1, Contenders: 1, Millis: 500, Timeout: 30}, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, free["p50"], float64((4 * delay).Microseconds()))
	require.Positive(t, free["requests"], "read from the server, not through the delay")
}
