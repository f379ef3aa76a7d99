package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// report formats the results of one setup.
type report struct {
	*results
	setup       setup
	workloads   []workload
	competitors []competitor
}

func newReport(found *results) *report {
	s := setupNamed(found.Setup)
	r := &report{found, s, filter(workloads(), s.hasWorkload), filter(competitors(), s.hasCompetitor)}
	if found.Against != "" {
		r.competitors = withOlder(r.competitors, revision{label: found.Against})
	}
	return r
}

func (r *report) spreadOf(w, c, figure string) stats.Spread { return stats.Of(r.known(w, c, figure)) }

// ratios returns the speed of competitor c relative to that of other, for each
// round.
func (r *report) ratios(w workload, c, other string) []float64 {
	above, below := r.values(w.name, c, w.figure), r.values(w.name, other, w.figure)
	if w.lessIsBetter() {
		above, below = below, above
	}
	return stats.Ratios(above, below)
}

// againstBest returns dlock's speed relative to its strongest peer, which is
// the one with the smallest median ratio.
func (r *report) againstBest(w workload) (speed stats.Spread) {
	for _, x := range r.competitors {
		if x.kind != peer {
			continue
		}
		if v := stats.Of(r.ratios(w, "dlock", x.name)); v.N > 0 && (speed.N == 0 || v.Median < speed.Median) {
			speed = v
		}
	}
	return speed
}

// overview returns the table for the page, with a row for each workload and a
// column for each competitor.
func (r *report) overview() string {
	taking := filter(r.competitors, func(x competitor) bool {
		return slices.ContainsFunc(r.workloads, func(w workload) bool { return r.spreadOf(w.name, x.name, w.figure).N > 0 })
	})
	if len(taking) == 0 {
		return "\nThis was not measured.\n\n"
	}
	header := slices.Concat([]string{"Workload"}, mapped(taking, func(x competitor) string { return x.label }), []string{"dlock's speed, best peer = 1"})
	var rows [][]string
	for _, w := range r.workloads {
		if len(r.Samples[w.name]) > 0 {
			cells := mapped(taking, func(x competitor) string { return r.cell(w, x) })
			rows = append(rows, slices.Concat([]string{w.title}, cells, []string{spread(r.againstBest(w))}))
		}
	}
	return fmt.Sprintf("\nMeasured on %s in %d rounds.\n\n%s\n", r.Date.UTC().Format("2 January 2006"), r.Settings.Rounds, table(header, rows))
}

func (r *report) cell(w workload, x competitor) string {
	found := r.spreadOf(w.name, x.name, w.figure)
	failed := len(r.Samples[w.name][x.name]) - found.N
	switch {
	case found.N == 0 && failed > 0:
		return "failed"
	case found.N == 0:
		return "-"
	}
	text := fmt.Sprintf("%s%s, %s", median(found), w.suffix(), median(r.spreadOf(w.name, x.name, "requests")))
	if failed > 0 {
		text += fmt.Sprintf(" (%d failed)", failed)
	}
	return text
}

func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# On %s\n\nFigures are medians: times and cpu in us, rate and won for each second, the others for each lock.\n\n", r.setup.phrase)
	for _, w := range r.workloads {
		if len(r.Samples[w.name]) > 0 {
			fmt.Fprintf(&b, "%s\n\n%s\n", w.name, r.table(w))
		}
	}
	if r.Against != "" {
		b.WriteString(r.against())
	}
	return b.String()
}

func (r *report) table(w workload) string {
	names := map[string]bool{}
	for _, samples := range r.Samples[w.name] {
		for _, s := range samples {
			for name := range s {
				names[name] = true
			}
		}
	}
	figures := slices.Sorted(maps.Keys(names))
	var rows [][]string
	for _, x := range r.competitors {
		if len(r.Samples[w.name][x.name]) > 0 {
			row := []string{x.label, r.cell(w, x), spread(stats.Of(r.ratios(w, x.name, "dlock")))}
			rows = append(rows, append(row, mapped(figures, func(name string) string { return median(r.spreadOf(w.name, x.name, name)) })...))
		}
	}
	return table(append([]string{"", w.figure + ", requests", "speed, dlock = 1"}, figures...), rows)
}
