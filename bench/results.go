package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"time"
)

type results struct {
	Setup    string
	Date     time.Time
	Settings struct{ Rounds int }
	Against  string `json:",omitempty"` // label of the older revision, if any
	// Samples has one sample per round, by workload and competitor. The
	// sample of a failed round is nil.
	Samples map[string]map[string][]sample
}

func newResults(setup string, rounds int) *results {
	r := &results{Setup: setup, Date: time.Now(), Samples: map[string]map[string][]sample{}}
	r.Settings.Rounds = rounds
	return r
}

func (r *results) add(w, c string, s sample) {
	if r.Samples[w] == nil {
		r.Samples[w] = map[string][]sample{}
	}
	r.Samples[w][c] = append(r.Samples[w][c], s)
}

// values returns the figure's value in each round, or NaN for rounds without
// it.
func (r *results) values(w, c, figure string) []float64 {
	return mapped(r.Samples[w][c], func(s sample) float64 {
		if v, known := s[figure]; known {
			return v
		}
		return math.NaN()
	})
}

func (r *results) known(w, c, figure string) (values []float64) {
	return filter(r.values(w, c, figure), func(v float64) bool { return !math.IsNaN(v) })
}

func (r *results) save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func significant(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

func load(path string) (*results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := newResults("", 0)
	return r, json.Unmarshal(text, r)
}
