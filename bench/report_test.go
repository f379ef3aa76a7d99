package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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

var contend2, contend8, free = workloadNamed("contend-2"), workloadNamed("contend-8"), workloadNamed("free")

func workloadNamed(name string) workload {
	all := workloads()
	return all[slices.IndexFunc(all, func(w workload) bool { return w.name == name })]
}

// oneLine joins the lines of a wrapped paragraph.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

func TestBeingAheadMeansAheadOfTheBestPeerInEveryRound(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 200, 300),
		"zk.Lock": rounds("rate", 100, 200),
		"kazoo":   rounds("rate", 10, 20),
		"etcd":    rounds("rate", 9000, 9000), // a lock on another store is not compared with dlock
	}})
	best, speed, st := r.judge(contend8)
	require.Equal(t, ahead, st)
	require.Equal(t, "zk.Lock", best.name)
	require.Equal(t, 1.75, speed.Median)
	require.Contains(t, oneLine(r.verdict(contend8)), "dlock is ahead of all peers. It is 1.75 (1.50 to 2.00) times as fast as the best of them, go-zookeeper `zk.Lock`.")
	require.Contains(t, oneLine(r.verdict(contend8)), "requests (kazoo `Lock` 15.0, dlock 250)")
}

func TestVerdictNamesAPeerThatIsAhead(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 150),
		"zk.Lock": rounds("rate", 200, 200),
	}})
	require.Contains(t, oneLine(r.verdict(contend8)), "**go-zookeeper `zk.Lock` is ahead of dlock.** dlock reaches 0.62 (0.50 to 0.75) of its speed.")
	require.Contains(t, r.summary(), "**behind**")
	require.Contains(t, oneLine(r.summary()), "Of 1 workloads, dlock is ahead of every peer in 0, about level with the best peer in 0, and behind it in 1.")
}

func TestRoundsThatDisagreeAreLevel(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 250),
		"zk.Lock": rounds("rate", 200, 200),
	}})
	_, _, st := r.judge(contend8)
	require.Equal(t, level, st)
}

func TestOnePeerThatWasFasterInOneRoundMeansLevel(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 200, 200, 200),
		"zk.Lock": rounds("rate", 180, 180, 180), // the best peer, by the median
		"kazoo":   rounds("rate", 10, 20, 300),
	}})
	best, _, st := r.judge(contend8)
	require.Equal(t, "zk.Lock", best.name)
	require.Equal(t, level, st)
}

func TestAFailedRoundOfDlockMeansLevel(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   {nil, {"rate": 200}},
		"zk.Lock": rounds("rate", 100, 100),
	}})
	_, speed, st := r.judge(contend8)
	require.Equal(t, 2.0, speed.Min, "the second round only")
	require.Equal(t, level, st)
}

func TestLessTimeIsMoreSpeed(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"free": {
		"dlock":   rounds("p50", 100, 100),
		"zk.Lock": rounds("p50", 150, 250),
	}})
	_, speed, st := r.judge(free)
	require.Equal(t, ahead, st)
	require.Equal(t, 2.0, speed.Median)
	require.Contains(t, r.table(free), "| go-zookeeper `zk.Lock` | 0.53 (0.40 to 0.67) |")
}

func TestWithoutPeersNothingIsClaimed(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {"dlock": rounds("rate", 100)}})
	require.Contains(t, r.verdict(contend8), "There was no other lock to compare with.")
	require.NotContains(t, r.verdict(contend8), "ahead")
}

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
	_, speed, _ := r.judge(contend8)
	require.Equal(t, 2.0, speed.Median, "the second round only")
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

func TestPageHasMarksForEveryPart(t *testing.T) {
	dir := t.TempDir()
	copyPage(t, dir)
	require.NoError(t, os.Mkdir(filepath.Join(dir, chartDir), 0o700))
	require.NoError(t, publish(dir))
}

func TestEveryWorkloadIsInASection(t *testing.T) {
	var shown []string
	for _, s := range sections {
		require.Len(t, s.panels, len(s.workloads))
		shown = append(shown, s.workloads...)
	}
	require.ElementsMatch(t, mapped(workloads(), func(w workload) string { return w.name }), shown)
}

func TestChartsAreXML(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock": rounds("rate", 100, 200), "zk.Lock": rounds("rate", 50, 60),
	}})
	for name, c := range r.charts() {
		d := xml.NewDecoder(strings.NewReader(c.svg()))
		for {
			_, err := d.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, name)
		}
	}
	require.Equal(t, 2, strings.Count(r.charts()["contend"].svg(), "<rect "))
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

// fewSamples returns two rounds of some competitors in two workloads.
func fewSamples() map[string]map[string][]sample {
	return map[string]map[string][]sample{
		"free":      {"dlock": rounds("p50", 104, 104), "zk.Lock": rounds("p50", 130, 156), "bare": rounds("p50", 100, 100)},
		"contend-2": {"dlock": rounds("rate", 90, 110), "zk.Lock": rounds("rate", 100, 100)},
	}
}

func TestSetupWithOneTableShowsAllItsWorkloads(t *testing.T) {
	r := reportOn("three", fewSamples())
	text := r.regions()["three"]
	require.Contains(t, text, "| Workload | dlock | go-zookeeper `zk.Lock` | the two bare requests | dlock's speed, best peer = 1 | dlock is |")
	require.Contains(t, text, "| A free lock: lock and unlock | 104 us, 104 requests | 143 us, 143 requests | 100 us, 100 requests | 1.38 (1.25 to 1.50) | ahead |")
	require.Contains(t, text, "| Sessions that contend for one lock: 2 sessions | 100/s, 100 requests | 100/s, 100 requests | - | 1.00 (0.90 to 1.10) | about level |")
	require.Contains(t, oneLine(text), "Of 2 workloads, dlock is ahead of every peer in 1, about level with the best peer in 1, and behind it in 0.")
	require.Contains(t, oneLine(text), "A free lock: lock and unlock. dlock takes 1.04 (1.04 to 1.04) times as long as the two bare requests.")
	require.NotContains(t, text, "target", "the times depend on which members the sessions use")
	require.NotContains(t, text, "kazoo", "not a competitor on this setup")
	require.Empty(t, r.charts())
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
	require.Contains(t, oneLine(r.regions()["delayed"]), "The target is at most 1.05 times, and dlock meets it.")
	require.Contains(t, oneLine(r.text()), sentence)
}

func TestTargetOfAFreeLockIsARatioToTheBareRequests(t *testing.T) {
	for took, want := range map[float64]string{
		104:   "dlock takes 1.04 (1.04 to 1.04) times as long as the two bare requests. The target is at most 1.05 times, and dlock meets it.",
		105.4: "1.05 (1.05 to 1.05) times as long as the two bare requests. The target is at most 1.05 times, and dlock meets it.",
		106:   "1.06 (1.06 to 1.06) times as long as the two bare requests. The target is at most 1.05 times, and dlock misses it.",
	} {
		r := reportOf(map[string]map[string][]sample{"free": {"dlock": rounds("p50", took, took), "bare": rounds("p50", 100, 100)}})
		require.Contains(t, oneLine(r.verdict(free)), want)
	}
	r := reportOf(map[string]map[string][]sample{"free": {"dlock": rounds("p50", 100), "zk.Lock": rounds("p50", 200)}})
	require.NotContains(t, r.verdict(free), "target", "the bare requests were not measured")
}

func TestTargetOfTwoSessionsOnOneServerIsToBeLevel(t *testing.T) {
	samples := func(rates ...float64) map[string]map[string][]sample {
		return map[string]map[string][]sample{"contend-2": {"dlock": rounds("rate", rates...), "zk.Lock": rounds("rate", 100, 100)}}
	}
	const target = "The target for this workload is to be level with the best peer, and dlock "
	require.Contains(t, oneLine(reportOf(samples(90, 110)).verdict(contend2)), target+"meets it.")
	require.Contains(t, oneLine(reportOf(samples(110, 110)).verdict(contend2)), target+"meets it.")
	require.Contains(t, oneLine(reportOf(samples(90, 90)).verdict(contend2)), target+"misses it.")
	require.NotContains(t, reportOn("three", samples(90, 110)).verdict(contend2), "target")
	require.NotContains(t, oneLine(reportOf(map[string]map[string][]sample{"contend-8": samples(90, 110)["contend-2"]}).verdict(contend8)), "target")
}

// The page and the charts in the repository have to be those that publish makes
// from the results in the repository.
func TestPageAndChartsAreThoseOfTheSavedResults(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("../docs/use")))
	require.NoError(t, publish(dir))
	generated, err := filepath.Glob(filepath.Join(dir, chartDir, "*.svg"))
	require.NoError(t, err)
	for _, path := range append(generated, filepath.Join(dir, "benchmarks.md")) {
		name, err := filepath.Rel(dir, path)
		require.NoError(t, err)
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		committed, err := os.ReadFile(filepath.Join("../docs/use", name))
		require.NoError(t, err)
		require.True(t, string(want) == string(committed), "%s is out of date: run `go run . -render` in bench", name)
	}
}
