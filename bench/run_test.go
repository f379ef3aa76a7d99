package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/work"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestCompetitorThatFailsInAWorkloadTakesPartInTheNext(t *testing.T) {
	const script = `while read line; do case $line in
		*/bench/free-*) echo error not this one ;;
		prepare*) echo ready ;;
		go) echo 'report {"seconds":1,"counts":[7],"allocs":-1}' ;;
		end) echo ended ;;
	esac; done`
	c := competitor{name: "dlock", command: func() (*exec.Cmd, error) {
		return exec.Command("/bin/sh", "-c", script), nil
	}}
	r := run{
		rounds: 2, competitors: []competitor{c}, samples: samples{},
		server: &zooKeeper{}, children: map[string]*child{}, // without members, there is nothing to count
	}
	t.Cleanup(r.stopChildren)
	require.NoError(t, r.startChildren())
	for _, name := range []string{"free", "pass"} {
		require.NoError(t, r.measure(t.Context(), workload{name: name, plan: work.Plan{Kind: work.Pass}}))
	}
	require.Equal(t, []sample{nil, nil}, r.samples["free"]["dlock"])
	require.Equal(t, []float64{7, 7}, r.samples.values("pass", "dlock", "rate"))
}

func TestCompetitorThatDoesNotStartIsLeftOutOrAnErrorBesideAnOlderRevision(t *testing.T) {
	missing := competitor{name: "kazoo", command: func() (*exec.Cmd, error) { return exec.Command("/no/such/program"), nil }}
	r := run{competitors: []competitor{missing}, older: "v1"}
	require.ErrorContains(t, r.startChildren(), "bench: kazoo cannot take part: choose others with -competitors: ")
	r.older = ""
	require.NoError(t, r.startChildren())
	require.Empty(t, r.competitors)
}

func startSetup(t *testing.T, s setup) (r *run, dlock competitor) {
	t.Helper()
	zktest.Require(t)
	z, err := startZooKeeper(s)
	require.NoError(t, err)
	t.Cleanup(z.stop)
	r = &run{setup: s, server: z, children: map[string]*child{}}
	t.Cleanup(r.stopChildren)
	dlock = competitors()[0]
	require.NoError(t, r.startChild(dlock))
	return r, dlock
}

func TestSessionsUseAllMembersOfAnEnsemble(t *testing.T) {
	t.Parallel()
	r, dlock := startSetup(t, setup{members: 3, sessionSeconds: 30})
	members := func() (received []int64) {
		for _, m := range r.server.members {
			received = append(received, m.Requests(t))
		}
		return received
	}
	before := members()
	_, err := r.round(dlock, workload{plan: work.Plan{Kind: work.Loop, Sessions: 20, Contenders: 20, Millis: 1000}})
	require.NoError(t, err)
	used := 0
	for i, after := range members() {
		if after > before[i]+20 { // more than pings alone would cause
			used++
		}
	}
	require.Greater(t, used, 1, "20 sessions choose one member by chance once in a billion runs")
}

// A free lock takes two requests. Each request and each reply is delayed.
func TestFreeLockIsDelayedFourTimesAndTakesTwoRequests(t *testing.T) {
	t.Parallel()
	const delay = 50 * time.Millisecond // far longer than a plain request takes
	r, dlock := startSetup(t, setup{members: 1, delay: delay, sessionSeconds: 30})
	s, err := r.round(dlock, free)
	require.NoError(t, err)
	require.GreaterOrEqual(t, s["p50"], float64((4 * delay).Microseconds()))
	require.InDelta(t, 2, s["requests"], 0.2, "with the heartbeats of a session of 30 s")
}

func TestEachHandOverOfADrainIsCounted(t *testing.T) {
	t.Parallel()
	r, _ := startSetup(t, setup{members: 1, sessionSeconds: 30})
	for _, c := range competitors() {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.kind == peer {
				t.Skip("most peers start a virtual machine")
			}
			_, err := c.command()
			zktest.RequirePeer(t, err)
			w := workload{name: c.name, plan: work.Plan{Kind: work.Drain, Sessions: 5, Contenders: 60, Untimed: 10}}
			s, err := r.roundOrRestart(c, w)
			require.NoError(t, err)
			want := map[kind]float64{ours: 1, variant: 2, peer: 2}[c.kind] // a release and, except for ours, a list
			require.InDelta(t, want, s["requests"], 0.3)
		})
	}
}
