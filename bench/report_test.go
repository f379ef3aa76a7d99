package main

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rounds makes samples of one figure.
func rounds(figure string, values ...float64) (all []sample) {
	for _, v := range values {
		all = append(all, sample{figure: v, "requests": v})
	}
	return all
}

func reportOf(samples map[string]map[string][]sample) *report {
	r := newResults(settings{Rounds: 2, SessionSeconds: 30})
	r.Samples = samples
	return newReport(r)
}

var contend, free = sectionOf("contend"), sectionOf("free")

func sectionOf(name string) section {
	for _, s := range sections {
		if s.name == name {
			return s
		}
	}
	panic(name)
}

func TestBeingAheadMeansAheadOfTheBestPeerInEveryRound(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 200, 300),
		"zk.Lock": rounds("rate", 100, 200),
		"kazoo":   rounds("rate", 10, 20),
		"etcd":    rounds("rate", 9000, 9000), // another server: not compared
	}})
	best, speed, st := r.judge(contend, "contend-8")
	require.Equal(t, ahead, st)
	require.Equal(t, "zk.Lock", best.name)
	require.Equal(t, 1.75, speed.Median)
	require.Contains(t, r.verdict(contend, "contend-8"), "1.75 (1.50 to 2.00) times as fast as the best of them, go-zookeeper `zk.Lock`")
	require.Contains(t, r.verdict(contend, "contend-8"), "15.0 requests (kazoo `Lock`; dlock 250)")
}

func TestAPeerThatIsAheadIsSaidToBe(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 150),
		"zk.Lock": rounds("rate", 200, 200),
	}})
	require.Contains(t, r.verdict(contend, "contend-8"), "**go-zookeeper `zk.Lock` is ahead of dlock**, which has 0.62 (0.50 to 0.75) of its speed")
	require.Contains(t, r.summary(), "**behind**")
	require.Contains(t, r.summary(), "Of 1 workloads dlock is ahead of every peer in 0, about level with the best one in 0, and behind in 1.")
}

func TestRoundsThatDisagreeAreLevel(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 250),
		"zk.Lock": rounds("rate", 200, 200),
	}})
	_, _, st := r.judge(contend, "contend-8")
	require.Equal(t, level, st)
}

func TestAnyPeerThatWasFasterInARoundCounts(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 200, 200, 200),
		"zk.Lock": rounds("rate", 180, 180, 180), // the best by the median
		"kazoo":   rounds("rate", 10, 20, 300),
	}})
	best, _, st := r.judge(contend, "contend-8")
	require.Equal(t, "zk.Lock", best.name)
	require.Equal(t, level, st)
}

func TestLessTimeIsMoreSpeed(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"free": {
		"dlock":   rounds("p50", 100, 100),
		"zk.Lock": rounds("p50", 150, 250),
	}})
	_, speed, st := r.judge(free, "free")
	require.Equal(t, ahead, st)
	require.Equal(t, 2.0, speed.Median)
	require.Contains(t, r.table(free, r.workload("free")), "| go-zookeeper `zk.Lock` | 0.53 (0.40 to 0.67) |")
}

func TestWithoutPeersNothingIsClaimed(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {"dlock": rounds("rate", 100)}})
	require.Contains(t, r.verdict(contend, "contend-8"), "No other lock was there to compare with.")
	require.NotContains(t, r.verdict(contend, "contend-8"), "ahead")
}

func TestRoundsThatFailedAreToldAndLeftOut(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{"contend-8": {
		"dlock":   rounds("rate", 100, 200),
		"zk.Lock": {nil, {"rate": 100}},
	}})
	r.fault("contend-8", "zk.Lock", errors.New("could not connect"))
	r.Missing["kazoo"] = "install python3-kazoo"
	text := r.table(contend, r.workload("contend-8"))
	require.Contains(t, text, "go-zookeeper `zk.Lock`: 1 of 2 rounds are missing after a fault (could not connect)")
	require.Contains(t, text, "kazoo `Lock` could not be had (install python3-kazoo)")
	_, speed, _ := r.judge(contend, "contend-8")
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

func TestOnlyWhatIsBetweenMarksIsReplaced(t *testing.T) {
	page := "by hand\n<!-- generated: a -->\nold\n<!-- end: a -->\nalso by hand\n"
	filled, err := fill(page, map[string]string{"a": "new\n"})
	require.NoError(t, err)
	require.Equal(t, strings.Replace(page, "old", "new", 1), filled)
	again, err := fill(filled, map[string]string{"a": "new\n"})
	require.NoError(t, err)
	require.Equal(t, filled, again)
	_, err = fill(page, map[string]string{"b": "new\n"})
	require.EqualError(t, err, `no place for the part "b"`)
}

func TestThePageHasAPlaceForEveryPart(t *testing.T) {
	r := reportOf(map[string]map[string][]sample{})
	dir := t.TempDir()
	copyPage(t, dir)
	require.NoError(t, publish(r.results, dir))
}

func TestEveryWorkloadIsInASection(t *testing.T) {
	var shown []string
	for _, s := range sections {
		require.Len(t, s.panels, len(s.workloads))
		shown = append(shown, s.workloads...)
	}
	require.ElementsMatch(t, names(workloads(), func(w workload) string { return w.name }), shown)
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

func TestChoosingKeepsTheOrderAndRefusesWhatIsUnknown(t *testing.T) {
	all := []string{"a", "b", "c"}
	self := func(s string) string { return s }
	chosen, err := choose(all, "c, a", self)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "c"}, chosen)
	_, err = choose(all, "x", self)
	require.EqualError(t, err, "bench: unknown: x; known are a, b, c")
}
