package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/work"
)

func TestFiguresArePerAcquisition(t *testing.T) {
	report := work.Report{Seconds: 2, Counts: []int64{4, 6}, Allocs: 50, Latencies: []int64{1000, 3000, 2000}}
	s, err := evaluate(work.Plan{Kind: work.Loop}, report, counters{requests: 20, packets: 50, bytes: 1500})
	require.NoError(t, err)
	require.Equal(t, sample{"rate": 5, "requests": 2, "packets": 5, "bytes": 150, "allocs": 5, "least": 0.8, "most": 1.2, "p50": 2}, s)
	_, err = evaluate(work.Plan{Kind: work.Loop}, work.Report{Seconds: 1, Counts: []int64{0}}, counters{})
	require.Error(t, err)
}

func TestTriesCountWithAndWithoutSuccess(t *testing.T) {
	report := work.Report{Seconds: 2, Counts: []int64{1, 1}, Tries: 10, Allocs: -1}
	s, err := evaluate(work.Plan{Kind: work.Try}, report, counters{requests: 30})
	require.NoError(t, err)
	require.Equal(t, sample{"rate": 5, "won": 1, "requests": 3, "packets": 0, "bytes": 0}, s)
}

func TestUntimedGrantsOfADrainAreNotCountedAsTime(t *testing.T) {
	report := work.Report{Seconds: 2, Counts: []int64{1, 1, 1, 1, 1}, Allocs: 30}
	used := counters{requests: 10, packets: 15, bytes: 150}
	s, err := evaluate(work.Plan{Kind: work.Drain, Untimed: 3}, report, used)
	require.NoError(t, err)
	require.Equal(t, sample{"rate": 1, "requests": 2, "packets": 3, "bytes": 30, "allocs": 15}, s)
	report.Counts = report.Counts[:3]
	_, err = evaluate(work.Plan{Kind: work.Drain, Untimed: 3}, report, used)
	require.Error(t, err, "nothing was timed")
}

func TestMedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle(t *testing.T) {
	values := []float64{9, 1, 3}
	require.Equal(t, 3.0, median(values))
	require.Equal(t, []float64{9, 1, 3}, values)
	require.Equal(t, 2.0, median([]float64{1, 9, 3, 1}))
	require.True(t, math.IsNaN(median(nil)))
}

func TestRatiosAreTakenWithinRoundsThatHaveBothValues(t *testing.T) {
	all := samples{"contend-8": {
		"dlock":   {{"rate": 4}, {"rate": 1}, nil, {"rate": 6}, {"rate": 1}},
		"zk.Lock": {{"rate": 2}, {"rate": 2}, {"rate": 1}, nil, {"rate": 0}},
	}}
	require.Equal(t, []float64{2, 0.5}, all.ratios(contend8, "dlock", "zk.Lock"))
	times := samples{"free": {"dlock": rounds("p50", 100, 100), "zk.Lock": rounds("p50", 150, 250)}}
	require.Equal(t, []float64{1.5, 2.5}, times.ratios(free, "dlock", "zk.Lock"), "less time is more speed")
}

func TestResultsAreTheSameAfterSavingAndLoading(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "benchmarks"), 0o755))
	r := runOf("contend-8", map[string][]sample{
		"dlock":   rounds("rate", 100, 200),
		"zk.Lock": {nil, {"rate": 100}},
		"kazoo":   {nil, nil},
	}).results()
	r.Date = r.Date.Truncate(time.Second)
	require.Equal(t, []float64{2, 2, 2}, r.Results[1].DlockSpeed)
	require.NoError(t, r.save(dir))
	loaded, err := load(dir, "one")
	require.NoError(t, err)
	r.Results[2].Figures = nil // an empty map is omitted
	require.Equal(t, r, loaded)
}
