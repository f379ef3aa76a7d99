package main

import (
	"encoding/json"
	"math"
	"os"
	"time"
)

// results is everything that the report is made of.
type results struct {
	Date     time.Time
	Machine  []fact
	Settings settings
	Against  string            `json:",omitempty"` // label of the older revision, if any
	Missing  map[string]string // competitors that could not be had, and why
	// Samples by workload and competitor, one a round; null where the round has failed.
	Samples map[string]map[string][]sample
	// Faults by workload and competitor: the last one.
	Faults map[string]map[string]string
	Took   string
}

// settings is what the run was asked to do.
type settings struct {
	Rounds, SessionSeconds int
}

// fact is a line of the description of the machine.
type fact struct{ Name, Value string }

func newResults(s settings) *results {
	return &results{
		Date: time.Now(), Settings: s, Missing: map[string]string{},
		Samples: map[string]map[string][]sample{}, Faults: map[string]map[string]string{},
	}
}

// add keeps a round; a nil sample is one that has failed.
func (r *results) add(w, c string, s sample) {
	if r.Samples[w] == nil {
		r.Samples[w] = map[string][]sample{}
	}
	r.Samples[w][c] = append(r.Samples[w][c], s)
}

func (r *results) fault(w, c string, err error) {
	if r.Faults[w] == nil {
		r.Faults[w] = map[string]string{}
	}
	r.Faults[w][c] = err.Error()
}

// values returns a figure round by round, NaN where there is none.
func (r *results) values(w, c, figure string) []float64 {
	var values []float64
	for _, s := range r.Samples[w][c] {
		v, known := s[figure]
		if !known {
			v = math.NaN()
		}
		values = append(values, v)
	}
	return values
}

// known is values without the rounds that have none.
func (r *results) known(w, c, figure string) (values []float64) {
	for _, v := range r.values(w, c, figure) {
		if !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// save writes figures with four digits that count: more says nothing.
func (r *results) save(path string) error {
	for _, competitors := range r.Samples {
		for _, samples := range competitors {
			for _, s := range samples {
				for name, v := range s {
					s[name] = significant(v)
				}
			}
		}
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
	r := newResults(settings{})
	return r, json.Unmarshal(text, r)
}
