package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// rounds returns one sample for each value. In each sample, both the given
// figure and the number of requests have that value.
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
	r := newResults(setup, settings{Rounds: 2, SessionSeconds: 30})
	r.Samples = samples
	return newReport(r)
}

var contend8, free = workloadNamed("contend-8"), workloadNamed("free")

func workloadNamed(name string) workload {
	all := workloads()
	return all[slices.IndexFunc(all, func(w workload) bool { return w.name == name })]
}

// oneLine joins the lines of a wrapped paragraph.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

func TestFailedRoundsAreReportedAndNotCounted(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 200),
		"zk.Lock": {nil, {"rate": 100}},
	}})
	r.fault("contend-8", "zk.Lock", errors.New("could not connect"))
	r.Missing["kazoo"] = "install python3-kazoo"
	text := oneLine(r.table(contend8))
	require.Contains(t, text, "go-zookeeper `zk.Lock` failed in 1 of 2 rounds (could not connect)")
	require.Contains(t, text, "kazoo `Lock` was not measured (install python3-kazoo)")
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
	filled, err := fill(page, map[string]string{"a": "new\n"})
	require.NoError(t, err)
	require.Equal(t, strings.Replace(page, "old", "new", 1), filled)
	again, err := fill(filled, map[string]string{"a": "new\n"})
	require.NoError(t, err)
	require.Equal(t, filled, again)
	_, err = fill(page, map[string]string{"b": "new\n"})
	require.EqualError(t, err, `the page has no marks for the part "b"`)
}

func TestChooseKeepsTheOrderAndRefusesUnknownNames(t *testing.T) {
	all := []string{"a", "b", "c"}
	self := func(s string) string { return s }
	chosen, err := choose(all, "c, a", self)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "c"}, chosen)
	_, err = choose(all, "x", self)
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
	require.Contains(t, r.table(free), "| go-zookeeper `zk.Lock` | 0.53 (0.40 to 0.67) |")
}

func TestTheTableOfASetupShowsItsWorkloadsAndFailures(t *testing.T) {
	samples := fewSamples()
	samples["contend-2"]["curator"] = []sample{nil, nil}
	r := reportOn("three", samples)
	r.fault("contend-2", "curator", errors.New("no quorum"))
	text := r.regions()["three"]
	require.Contains(t, text, "| Workload | dlock | go-zookeeper `zk.Lock` | the two bare requests | dlock's speed, best peer = 1 |")
	require.Contains(t, text, "| a free lock: lock and unlock | 104 us, 104 | 143 us, 143 | 100 us, 100 | 1.38 (1.25 to 1.50) |")
	require.Contains(t, text, "| 2 sessions contend | 100/s, 100 | 100/s, 100 | - | 1.00 (0.90 to 1.10) |")
	require.Contains(t, oneLine(text), "2 sessions contend: Curator `InterProcessMutex` failed in 2 of 2 rounds (no quorum).")
	require.NotContains(t, text, "kazoo", "not a competitor on this setup")
}

// fewSamples returns two rounds of some competitors in two workloads.
func fewSamples() map[string]map[string][]sample {
	return map[string]map[string][]sample{
		"free":      {"dlock": rounds("p50", 104, 104), "zk.Lock": rounds("p50", 130, 156), "bare": rounds("p50", 100, 100)},
		"contend-2": {"dlock": rounds("rate", 90, 110), "zk.Lock": rounds("rate", 100, 100)},
	}
}

func TestSetupWithoutResultsIsNotMeasured(t *testing.T) {
	require.Equal(t, map[string]string{"delayed": "\n" + notMeasured + "\n"}, reportOn("delayed", nil).regions())
}

func TestRoundTripThroughTheDelayIsReported(t *testing.T) {
	r := reportOn("delayed", fewSamples())
	r.Settings.Delay = time.Millisecond
	r.RoundTrips = roundTrips{Alone: 2050 * time.Microsecond, Together: 2200 * time.Microsecond}
	const sentence = "The network delay is 1ms in each direction. The median of a ping and its answer was 2.05 ms, and 2.20 ms with 8 connections at the same time."
	require.Contains(t, oneLine(r.regions()["delayed"]), sentence)
	require.Contains(t, oneLine(r.text()), sentence)
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
