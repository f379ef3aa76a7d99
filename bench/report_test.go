package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// rounds returns samples of a figure, one for each value.
func rounds(figure string, values ...float64) (all []sample) {
	for _, v := range values {
		all = append(all, sample{figure: v, "requests": v})
	}
	return all
}

func reportOf(samples map[string]map[string][]sample) *report {
	return reportOn("one", samples)
}

func reportOn(setup string, samples map[string]map[string][]sample) *report {
	r := newResults(setup, 2)
	r.Samples = samples
	return newReport(r)
}

var contend8, free = workloadNamed("contend-8"), workloadNamed("free")

func workloadNamed(name string) workload {
	all := workloads()
	return all[slices.IndexFunc(all, func(w workload) bool { return w.name == name })]
}

func TestFailedRoundsAreReportedAndNotCounted(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 200),
		"zk.Lock": {nil, {"rate": 100, "requests": 5}},
		"kazoo":   {nil, nil},
	}})
	require.Equal(t, []string{"150/s, 150", "100/s, 5.00 (1 failed)", "failed", "-"},
		mapped([]string{"dlock", "zk.Lock", "kazoo", "etcd"}, func(name string) string { return r.cell(contend8, competitor{name: name}) }))
	require.Equal(t, 2.0, r.againstBest(contend8).Median, "the second round only")
}

func TestResultsAreTheSameAfterSavingAndLoading(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 200),
		"zk.Lock": {nil, {"rate": 100}},
	}})
	path := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, r.save(path))
	loaded, err := load(path)
	require.NoError(t, err)
	require.Equal(t, r.text(), newReport(loaded).text())
}

func TestFillReplacesOnlyTheTextBetweenMarks(t *testing.T) {
	page := "by hand\n<!-- generated: a -->\nold\n<!-- end: a -->\nalso by hand\n"
	filled, err := fill(page, "a", "new\n")
	require.NoError(t, err)
	require.Equal(t, strings.Replace(page, "old", "new", 1), filled)
	again, err := fill(filled, "a", "new\n")
	require.NoError(t, err)
	require.Equal(t, filled, again)
	_, err = fill(page, "b", "new\n")
	require.EqualError(t, err, `the page has no marks for the part "b"`)
}

func TestChooseKeepsTheOrderAndRefusesUnknownNames(t *testing.T) {
	all := []setup{{name: "a"}, {name: "b"}, {name: "c"}}
	chosen, err := choose(all, "c, a")
	require.NoError(t, err)
	require.Equal(t, []setup{{name: "a"}, {name: "c"}}, chosen)
	_, err = choose(all, "x")
	require.EqualError(t, err, "bench: unknown: x; known are a, b, c")
}

func TestSpeedIsComparedWithTheBestPeer(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 200, 300),
		"zk.Lock": rounds("rate", 100, 200),
		"kazoo":   rounds("rate", 10, 20),
		"etcd":    rounds("rate", 9000, 9000), // no peer: another store
	}})
	require.Equal(t, stats.Of([]float64{1.5, 2}), r.againstBest(contend8))
	require.Zero(t, reportOf(map[string]map[string][]sample{"contend-8": {"dlock": rounds("rate", 100)}}).againstBest(contend8))
}

func TestLessTimeIsMoreSpeed(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"free": {
		"dlock":   rounds("p50", 100, 100),
		"zk.Lock": rounds("p50", 150, 250),
	}})
	require.Equal(t, 2.0, r.againstBest(free).Median)
	require.Contains(t, r.table(free), "| go-zookeeper `zk.Lock` | 200 us, 200 | 0.53 (0.40 to 0.67) | 200 | 200 |")
}

func TestTheTableOfASetupShowsItsWorkloads(t *testing.T) {
	samples := fewSamples()
	samples["contend-2"]["curator"] = []sample{nil, nil}
	r := reportOn("three", samples)
	text := r.overview()
	require.Contains(t, text, "| Workload | dlock | go-zookeeper `zk.Lock` | the two bare requests | dlock's speed, best peer = 1 |")
	require.Contains(t, text, "| a free lock: lock and unlock | 104 us, 104 | 143 us, 143 | 100 us, 100 | 1.38 (1.25 to 1.50) |")
	require.Contains(t, text, "| 2 sessions contend | 100/s, 100 | 100/s, 100 | - | 1.00 (0.90 to 1.10) |")
	require.NotContains(t, text, "Curator", "no round succeeded")
	require.NotContains(t, text, "kazoo", "not a competitor on this setup")
}

func fewSamples() map[string]map[string][]sample {
	return map[string]map[string][]sample{
		"free":      {"dlock": rounds("p50", 104, 104), "zk.Lock": rounds("p50", 130, 156), "bare": rounds("p50", 100, 100)},
		"contend-2": {"dlock": rounds("rate", 90, 110), "zk.Lock": rounds("rate", 100, 100)},
	}
}

func TestSetupWithoutResultsIsNotMeasured(t *testing.T) {
	require.Equal(t, "\nThis was not measured.\n\n", reportOn("delayed", nil).overview())
}

func TestThePageHasTheSavedResults(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(pageDir)))
	require.NoError(t, publish(dir))
	want, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	require.NoError(t, err)
	committed, err := os.ReadFile(filepath.Join(pageDir, "benchmarks.md"))
	require.NoError(t, err)
	require.True(t, string(want) == string(committed), "run `go run . -render` in bench")
}
