package main

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func rounds(figure string, values ...float64) (all []sample) {
	for _, v := range values {
		all = append(all, sample{figure: v, "requests": v})
	}
	return all
}

func runOf(workload string, of map[string][]sample) *run {
	return &run{setup: setups()[0], workloads: workloads(), competitors: competitors(), samples: samples{workload: of}}
}

func lines(text string) []string { return strings.Split(text, "\n") }

var contend8, free = workloadNamed("contend-8"), workloadNamed("free")

func workloadNamed(name string) workload {
	all := workloads()
	return all[slices.IndexFunc(all, func(w workload) bool { return w.name == name })]
}

func TestOverviewHasTheMeasuredLocksAndTheBestPeer(t *testing.T) {
	r := runOf("contend-8", map[string][]sample{
		"dlock":      rounds("rate", 200, 300),
		"dlock-list": rounds("rate", 900, 900), // no peer
		"zk.Lock":    rounds("rate", 100, 200),
		"curator":    {nil, {"rate": 10, "requests": 5}},
		"kazoo":      {nil, nil},
	})
	require.Equal(t, []string{
		"| Workload | dlock | dlock, `handover=list` | go-zookeeper `zk.Lock` | Curator `InterProcessMutex` | dlock's speed, best peer = 1 |",
		"|---|---:|---:|---:|---:|---:|",
		"| 8 sessions contend | 250/s, 250 | 900/s, 900 | 150/s, 150 | 10.0/s, 5.00 (1 failed) | 1.75 (1.50–2.00) |",
		"",
	}, lines(r.results().overview(r.competitors)))
	require.Equal(t, "failed", result{Failed: 2}.cell(contend8))
	require.Equal(t, "-", result{}.cell(contend8))
}

func TestPrintedTextHasEveryFigure(t *testing.T) {
	text := runOf("free", map[string][]sample{"dlock": rounds("p50", 100, 104), "zk.Lock": rounds("p50", 153, 153)}).text()
	require.Contains(t, text, "# On one server\n")
	require.Contains(t, text, "| a free lock | 102 us, 102 | 153 us, 153 | 1.50 (1.47–1.53) |\n")
	require.Contains(t, text, "| workload | lock | dlock's speed, lock = 1 | p50 | rate | won | requests |")
	require.Contains(t, text, "| free | zk.Lock | 1.50 (1.47–1.53) | 153 | - | - | 153 |")
}

func TestNumbersHaveThreeSignificantDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 1.005: "1.00", 9.994: "9.99", 9.996: "10.0", 42.42: "42.4", 99.96: "100", 999.5: "1,000", 1234567: "1,234,567", 123456: "123,456",
	} {
		require.Equal(t, want, number(v))
	}
	require.Equal(t, "-", number(math.NaN()))
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

	require.NoError(t, os.Remove(resultsFile(dir, "delayed")))
	require.NoError(t, publish(dir))
	page, err := os.ReadFile(filepath.Join(dir, "benchmarks.md"))
	require.NoError(t, err)
	require.Equal(t, strings.Count(string(want), "Measured on")-1, strings.Count(string(page), "Measured on"))
	require.Contains(t, string(page), "<!-- generated: delayed -->\n\nThis was not measured.\n\n<!-- end: delayed -->")
	_, err = fill(string(page), "other", "")
	require.EqualError(t, err, `the page has no marks for the part "other"`)
}
