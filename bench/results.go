package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// sample maps figure names to the values measured in one round. Traffic and
// allocations are given per acquisition, or per try.
type sample map[string]float64

// figures are the names of all figures. The last two are a contender's least
// and greatest acquisitions, relative to an equal share.
var figures = []string{"p50", "rate", "won", "requests", "packets", "bytes", "allocs", "least", "most"}

// evaluate computes the figures of a round. Times are in microseconds.
func evaluate(p work.Plan, r work.Report, used counters) (sample, error) {
	var won int64
	for _, n := range r.Counts {
		won += n
	}
	done := float64(won)
	if p.Kind == work.Try {
		done = float64(r.Tries)
	}
	timed := done - float64(p.Untimed)
	if timed <= 0 || r.Seconds <= 0 {
		return nil, fmt.Errorf("nothing was done in %.1fs", r.Seconds)
	}
	s := sample{"rate": timed / r.Seconds, "requests": used.requests / done, "packets": used.packets / done, "bytes": used.bytes / done}
	if r.Allocs >= 0 {
		s["allocs"] = float64(r.Allocs) / timed
	}
	switch p.Kind {
	case work.Loop:
		equal := done / float64(len(r.Counts))
		s["least"], s["most"] = float64(slices.Min(r.Counts))/equal, float64(slices.Max(r.Counts))/equal
	case work.Try:
		s["won"] = float64(won) / r.Seconds
	}
	if len(r.Latencies) > 0 {
		s["p50"] = median(mapped(r.Latencies, func(ns int64) float64 { return float64(ns) / 1e3 }))
	}
	return s, nil
}

// samples has one sample per round, by workload and competitor. The sample of a
// failed round is nil.
type samples map[string]map[string][]sample

func (all samples) add(w, c string, s sample) {
	if all[w] == nil {
		all[w] = map[string][]sample{}
	}
	all[w][c] = append(all[w][c], s)
}

// values returns the figure's value in each round, NaN where it is missing.
func (all samples) values(w, c, figure string) []float64 {
	return mapped(all[w][c], func(s sample) float64 {
		if v, known := s[figure]; known {
			return v
		}
		return math.NaN()
	})
}

// ratios returns the speed of competitor c, relative to the other one, in each
// round. Load on the machine affects both alike.
func (all samples) ratios(w workload, c, other string) (ratios []float64) {
	above, below := all.values(w.name, c, w.figure), all.values(w.name, other, w.figure)
	if w.lessIsBetter() {
		above, below = below, above
	}
	for i := range min(len(above), len(below)) {
		if v := above[i] / below[i]; !math.IsNaN(v) && !math.IsInf(v, 0) {
			ratios = append(ratios, v)
		}
	}
	return ratios
}

// results holds what the page shows about a run.
type results struct {
	Setup       string
	Date        time.Time
	Environment string
	Rounds      int
	Results     []result
}

type result struct {
	Workload, Lock string
	Failed         int                `json:",omitempty"` // number of failed rounds
	Figures        map[string]float64 `json:",omitempty"` // medians of the successful rounds
	// DlockSpeed is dlock's speed relative to this lock: the median of the
	// rounds, the smallest and the largest. It is nil for dlock itself.
	DlockSpeed []float64 `json:",omitempty"`
}

func (r *run) results() *results {
	all := &results{Setup: r.setup.name, Date: time.Now().UTC(), Environment: environment(), Rounds: r.rounds}
	for _, w := range r.workloads {
		for _, c := range r.competitors {
			rounds := r.samples[w.name][c.name]
			if len(rounds) == 0 {
				continue
			}
			x := result{Workload: w.name, Lock: c.name, Figures: map[string]float64{}}
			x.Failed = len(filter(rounds, func(s sample) bool { return s == nil }))
			for _, f := range figures {
				values := r.samples.values(w.name, c.name, f)
				if values = filter(values, func(v float64) bool { return !math.IsNaN(v) }); len(values) > 0 {
					x.Figures[f] = significant(median(values))
				}
			}
			if ratios := r.samples.ratios(w, "dlock", c.name); len(ratios) > 0 && c.name != "dlock" {
				x.DlockSpeed = mapped([]float64{median(ratios), slices.Min(ratios), slices.Max(ratios)}, significant)
			}
			all.Results = append(all.Results, x)
		}
	}
	return all
}

func environment() string {
	text := fmt.Sprintf("%s/%s, %d cores, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/go-zookeeper/zk" {
				text += ", " + m.Path + " " + m.Version
			}
		}
	}
	return text
}

func resultsFile(docs, setup string) string {
	return filepath.Join(docs, "benchmarks", "results-"+setup+".json")
}

func (r *results) save(docs string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(text, []byte(`{"Workload"`), []byte("\n"+`{"Workload"`))
	return os.WriteFile(resultsFile(docs, r.Setup), append(text, '\n'), 0o644)
}

func load(docs, setup string) (*results, error) {
	text, err := os.ReadFile(resultsFile(docs, setup))
	if err != nil {
		return nil, err
	}
	r := &results{}
	return r, json.Unmarshal(text, r)
}

// significant rounds v to five digits, two more than tables show.
func significant(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 4-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// median returns the middle value, or the mean of two, or NaN without values.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
