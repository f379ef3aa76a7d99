package main

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/work"
)

func TestFiguresArePerAcquisition(t *testing.T) {
	report := work.Report{Seconds: 2, CPU: 0.001, Counts: []int64{4, 6}, Allocs: 50}
	s, err := evaluate(work.Plan{Kind: work.Loop}, report, counters{received: 20, sent: 30, bytesIn: 1000, bytesOut: 500})
	require.NoError(t, err)
	require.Equal(t, sample{
		"rate": 5, "requests": 2, "packets": 5, "bytes": 150, "cpu": 100, "allocs": 5, "least": 0.8, "most": 1.2,
	}, s)
}

func TestTriesCountWithAndWithoutSuccess(t *testing.T) {
	report := work.Report{Seconds: 2, Counts: []int64{1, 1}, Tries: 10, Allocs: -1}
	s, err := evaluate(work.Plan{Kind: work.Try}, report, counters{received: 30})
	require.NoError(t, err)
	require.Equal(t, 5.0, s["rate"])
	require.Equal(t, 1.0, s["won"])
	require.Equal(t, 3.0, s["requests"])
	require.NotContains(t, s, "allocs")
}

func TestUntimedGrantsOfADrainAreNotCountedAsTime(t *testing.T) {
	report := work.Report{Seconds: 2, CPU: 0.001, Counts: []int64{1, 1, 1, 1, 1}, Allocs: 30}
	used := counters{received: 10, sent: 5, bytesIn: 100, bytesOut: 50}
	s, err := evaluate(work.Plan{Kind: work.Drain, Untimed: 3}, report, used)
	require.NoError(t, err)
	require.Equal(t, sample{"rate": 1, "requests": 2, "packets": 3, "bytes": 30, "cpu": 500, "allocs": 15}, s)
	report.Counts = report.Counts[:3]
	_, err = evaluate(work.Plan{Kind: work.Drain, Untimed: 3}, report, used)
	require.Error(t, err, "nothing was timed")
}

func TestLatenciesAreInMicroseconds(t *testing.T) {
	report := work.Report{Seconds: 1, Counts: []int64{3}, Latencies: []int64{1000, 3000, 2000}}
	s, err := evaluate(work.Plan{Kind: work.Loop}, report, counters{})
	require.NoError(t, err)
	require.Equal(t, 2.0, s["p50"])
	require.Equal(t, 3.0, s["p99"])
}

func TestRoundWithoutAnAcquisitionIsAnError(t *testing.T) {
	_, err := evaluate(work.Plan{Kind: work.Loop}, work.Report{Seconds: 1, Counts: []int64{0}}, counters{})
	require.Error(t, err)
}

func TestSharesAreThoseOfSessionsThatHaveSeveralContenders(t *testing.T) {
	counts := []int64{1, 2, 3, 4}
	require.Equal(t, []int64{4, 6}, shares(work.Plan{Sessions: 2}, counts))
	require.Equal(t, counts, shares(work.Plan{Sessions: 1}, counts))
	require.Equal(t, counts, shares(work.Plan{Sessions: 4}, counts))
}

type idleServer struct{}

func (idleServer) addr() string            { return "" }
func (idleServer) read() (counters, error) { return counters{}, nil }
func (idleServer) readCost() counters      { return counters{} }
func (idleServer) stop()                   {}

func TestCompetitorThatFailsInAWorkloadTakesPartInTheNext(t *testing.T) {
	const script = `while read line; do case $line in
		*/bench/free-*) echo error not this one ;;
		prepare*) echo ready ;;
		go) echo 'report {"seconds":1,"counts":[7],"allocs":-1}' ;;
		end) echo ended ;;
	esac; done`
	c := competitor{name: "dlock", server: zookeeper, command: func(string) (*exec.Cmd, error) {
		return exec.Command("/bin/sh", "-c", script), nil
	}}
	r := run{
		rounds: 2, competitors: []competitor{c}, results: newResults("one", 2),
		servers: map[string]server{zookeeper: idleServer{}}, children: map[string]*child{},
	}
	t.Cleanup(r.stop)
	require.NoError(t, r.startChild(c, ""))
	for _, name := range []string{"free", "pass"} {
		require.NoError(t, r.measure(t.Context(), workload{name: name, plan: work.Plan{Kind: work.Pass}}, ""))
	}
	require.Equal(t, []sample{nil, nil}, r.results.Samples["free"]["dlock"])
	require.Empty(t, r.results.known("free", "dlock", "rate"))
	require.Equal(t, []float64{7, 7}, r.results.known("pass", "dlock", "rate"))
}
