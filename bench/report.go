package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/bench/internal/stats"
	"github.com/dlock-go/dlock/bench/internal/work"
)

// report makes tables from the results of one setup.
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

// spreadOf returns the spread of a figure of competitor c in workload w, over the
// rounds that have the figure.
func (r *report) spreadOf(w, c, figure string) stats.Spread { return stats.Of(r.known(w, c, figure)) }

// speeds returns the spread, over all rounds, of the speed of competitor c
// divided by the speed of the competitor named other.
func (r *report) speeds(w workload, c, other string) stats.Spread {
	return stats.Of(r.ratios(w, c, other))
}

// ratios returns, for each round, the speed of competitor c divided by the
// speed of the competitor named other.
func (r *report) ratios(w workload, c, other string) []float64 {
	above, below := r.values(w.name, c, w.figure), r.values(w.name, other, w.figure)
	if w.lessIsBetter() {
		above, below = below, above
	}
	return stats.Ratios(above, below)
}

// againstBest returns dlock's speed divided by that of the best peer: the one
// with the smallest median of this ratio.
func (r *report) againstBest(w workload) (speed stats.Spread) {
	for _, x := range r.competitors {
		if x.kind != peer {
			continue
		}
		if v := r.speeds(w, "dlock", x.name); v.N > 0 && (speed.N == 0 || v.Median < speed.Median) {
			speed = v
		}
	}
	return speed
}

// regions returns the generated parts of the page, by name.
func (r *report) regions() map[string]string {
	regions := map[string]string{r.setup.name: r.overview()}
	if r.setup.describesMachine {
		regions["machine"] = r.machine()
	}
	return regions
}

const notMeasured = "This was not measured.\n"

// overview returns the table of the setup: a line for each workload, and a column
// for each competitor.
func (r *report) overview() string {
	var taking []competitor
	header := []string{"Workload"}
	for _, x := range r.competitors {
		if slices.ContainsFunc(r.workloads, func(w workload) bool { return r.has(w, x) }) {
			taking = append(taking, x)
			header = append(header, x.label)
		}
	}
	var rows [][]string
	var notes string
	for _, w := range r.workloads {
		if len(r.Samples[w.name]) == 0 {
			continue
		}
		row := []string{w.title}
		for _, x := range taking {
			cell := "-"
			if r.has(w, x) {
				cell = fmt.Sprintf("%s%s, %s", median(r.spreadOf(w.name, x.name, w.figure)), w.suffix(), median(r.spreadOf(w.name, x.name, "requests")))
			}
			row = append(row, cell)
		}
		rows = append(rows, append(row, spread(r.againstBest(w))))
		if failures := r.failures(w); failures != "" {
			notes += "\n" + wrap(w.title+": "+failures) + "\n"
		}
	}
	if len(rows) == 0 {
		return "\n" + notMeasured + "\n"
	}
	return "\n" + wrap(r.measurement()) + "\n\n" + table(append(header, "dlock's speed, best peer = 1"), rows) + notes + "\n"
}

func (r *report) has(w workload, x competitor) bool {
	return len(r.known(w.name, x.name, w.figure)) > 0
}

// measurement says when and how often the setup was measured.
func (r *report) measurement() string {
	s := fmt.Sprintf("Measured on %s in %d rounds, which took %s.", r.Date.UTC().Format("2 January 2006"), r.Settings.Rounds, r.Took)
	if r.RoundTrips != (roundTrips{}) {
		s += " " + r.delay()
	}
	return s
}

// delay says how long the network delay is, and what a round trip takes.
func (r *report) delay() string {
	ms := func(d time.Duration) string { return number(d.Seconds() * 1e3) }
	return fmt.Sprintf("The network delay is %v in each direction. The median of a ping and its answer was %s ms, and %s ms with %d connections at the same time.",
		r.Settings.Delay, ms(r.RoundTrips.Alone), ms(r.RoundTrips.Together), pingsTogether)
}

// machine returns the table that describes the machine and the run.
func (r *report) machine() string {
	rows := [][]string{{"Date", r.Date.UTC().Format("2 January 2006, 15:04 UTC")}}
	for _, f := range r.Machine {
		rows = append(rows, []string{f.Name, f.Value})
	}
	rows = append(rows, []string{"Session timeout of all locks", fmt.Sprintf("%d s", r.Settings.SessionSeconds)})
	return "\n" + strings.Replace(table([]string{"", ""}, rows), "---:", "---", 1) + "\n"
}

// text returns the report for a terminal, with every figure.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# On %s\n\n%s\n\n", r.setup.phrase, wrap(r.measurement()))
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

// column is a column of a table. It shows one figure of each competitor.
type column struct {
	header, figure string
	write          func(stats.Spread) string
}

// columns returns the columns of the table of a workload.
func columns(w workload) (list []column) {
	switch w.figure {
	case "p50":
		list = []column{{"p50, us", "p50", spread}, {"p90, us", "p90", median}, {"p99, us", "p99", median}}
	case "won":
		list = []column{{"locks taken/s", "won", spread}, {w.unit + "/s", "rate", median}}
	default:
		list = []column{{w.unit + "/s", "rate", spread}}
	}
	if w.plan.Kind == work.Loop && w.plan.Contenders > 1 {
		list = append(list, column{"smallest share", "least", median}, column{"largest share", "most", median})
	}
	list = append(list, column{"requests for each", "requests", median}, column{"packets", "packets", median}, column{"bytes", "bytes", median})
	if w.plan.Kind == work.Drain {
		list = append(list, column{"bytes to join", "join bytes", median})
	}
	return append(list, column{"client CPU, us", "cpu", median}, column{"allocations", "allocs", median})
}

// table returns all figures of a workload.
func (r *report) table(w workload) string {
	list := columns(w)
	header := []string{"", "speed, dlock = 1"}
	for _, c := range list {
		header = append(header, c.header)
	}
	var rows [][]string
	for _, x := range r.competitors {
		if !r.has(w, x) {
			continue
		}
		row := []string{x.label, spread(r.speeds(w, x.name, "dlock"))}
		for _, c := range list {
			row = append(row, c.write(r.spreadOf(w.name, x.name, c.figure)))
		}
		rows = append(rows, row)
	}
	text := notMeasured
	if len(rows) > 0 {
		text = table(header, rows)
	}
	if failures := r.failures(w); failures != "" {
		text += "\n" + wrap(failures) + "\n"
	}
	return text
}

// failures says which competitors were not measured, or failed, and why.
func (r *report) failures(w workload) string {
	var all []string
	for _, x := range r.competitors {
		fault, failed := r.Faults[w.name][x.name], 0
		for _, s := range r.Samples[w.name][x.name] {
			if s == nil {
				failed++
			}
		}
		switch {
		case !w.measures(x):
		case r.Missing[x.name] != "":
			all = append(all, x.label+" was not measured ("+r.Missing[x.name]+").")
		case failed > 0:
			all = append(all, fmt.Sprintf("%s failed in %d of %d rounds (%s). These rounds do not count.", x.label, failed, r.Settings.Rounds, fault))
		}
	}
	return strings.Join(all, " ")
}
