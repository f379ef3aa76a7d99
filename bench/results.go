package main

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"time"
)

// results holds everything that the report of one setup is made of.
type results struct {
	Setup      string // name of the setup
	Date       time.Time
	Machine    []fact
	Settings   settings
	RoundTrips roundTrips        `json:",omitzero"`  // the round trips through the network delay; zero if the setup has no delay
	Against    string            `json:",omitempty"` // label of the older revision, if any
	Missing    map[string]string // why a competitor could not be measured, by its name
	// Samples holds one sample for each round, by workload and competitor. A sample is
	// null if the round failed.
	Samples map[string]map[string][]sample
	// Faults holds the last error, by workload and competitor.
	Faults map[string]map[string]string
	Took   string
}

// settings are what the caller of bench chose.
type settings struct {
	Rounds, SessionSeconds int
	Delay                  time.Duration `json:",omitempty"` // network delay in each direction, if the setup has one
}

// fact is a line of the description of the machine.
type fact struct{ Name, Value string }

func newResults(setup string, s settings) *results {
	return &results{
		Setup: setup, Date: time.Now(), Settings: s, Missing: map[string]string{},
		Samples: map[string]map[string][]sample{}, Faults: map[string]map[string]string{},
	}
}

// add adds the sample of one round of workload w with competitor c. A nil
// sample stands for a round that failed.
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

// values returns one figure of competitor c in workload w for each round. If a round
// does not have the figure, its value is NaN.
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

// known is like values, but leaves out the rounds that do not have the figure.
func (r *results) known(w, c, figure string) (values []float64) {
	for _, v := range r.values(w, c, figure) {
		if !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values
}

// save writes the results to a file. It rounds all figures to four significant digits.
func (r *results) save(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
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

// significant rounds a number to four significant digits.
func significant(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// load reads a file that save has written.
func load(path string) (*results, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := newResults("", settings{})
	return r, json.Unmarshal(text, r)
}
