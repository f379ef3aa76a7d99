package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
	"github.com/dlock-go/dlock/bench/internal/work"
)

// report makes sentences, tables and charts from the results of one setup. Every
// sentence of the page that depends on figures is made here.
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

// section is the part of the page for a kind of workload.
type section struct {
	name      string
	title     string // the title of the chart
	axis      string // what the bars of the chart stand for
	workloads []string
	panels    []string // titles of the chart's parts, one for each workload
	log       bool     // the scale of the chart is logarithmic
	uncharted string   // a competitor that the chart leaves out, because its bar is far shorter or longer than the others
}

const (
	medianTime      = "microseconds, median; less is better"
	acquisitionRate = "acquisitions per second; more is better"
	handOverRate    = "hand-overs per second; more is better"
)

var sections = []section{
	{name: "free", title: "A free lock: lock and unlock", axis: medianTime, workloads: []string{"free"}, panels: []string{""}, uncharted: "dlock-retention"},
	{name: "contend", title: "Sessions that contend for one lock", axis: acquisitionRate,
		workloads: []string{"contend-2", "contend-8", "contend-32"}, panels: []string{"2 sessions", "8 sessions", "32 sessions"}},
	{name: "queue", title: "A queue that is drained", axis: handOverRate,
		workloads: []string{"queue-100", "queue-200", "queue-400", "queue-1000"}, panels: []string{"100 wait", "200 wait", "400 wait", "1,000 wait"}},
	{name: "readers", title: "8 sessions, 95% readers", axis: acquisitionRate, workloads: []string{"readers"}, panels: []string{""}},
	{name: "process", title: "64 contenders of one process or of two", axis: acquisitionRate,
		workloads: []string{"process", "processes"}, panels: []string{"one process, 64 contenders", "two processes, 32 contenders each"}, log: true},
	{name: "try-held", title: "8 sessions that try a lock which is held", axis: "tries per second; more is better", workloads: []string{"try-held"}, panels: []string{""}},
	{name: "try-free", title: "8 sessions that try, unlock and try again", axis: "locks taken per second; more is better", workloads: []string{"try-free"}, panels: []string{""}},
	{name: "pass", title: "From release to grant", axis: medianTime, workloads: []string{"pass"}, panels: []string{""}},
	{name: "waited", title: "A queue whose contenders have waited for 6 s", axis: handOverRate,
		workloads: []string{"waited", "waited-hold"}, panels: []string{"drained", "with holds of 5 ms, from release to grant"}},
}

// heading is the title of the i-th workload of the section.
func (s section) heading(i int) string {
	if s.panels[i] == "" {
		return s.title
	}
	return s.title + ": " + s.panels[i]
}

// titled is a workload with its title.
type titled struct {
	workload
	title string
}

// sections returns the sections whose workloads the setup has.
func (r *report) sections() []section {
	return filter(sections, func(s section) bool {
		_, has := r.workload(s.workloads[0])
		return has
	})
}

// inOrder returns the workloads of the setup in the order in which docs/use/benchmarks.md
// shows them.
func (r *report) inOrder() (all []titled) {
	for _, s := range sections {
		for i, name := range s.workloads {
			if w, found := r.workload(name); found {
				all = append(all, titled{w, s.heading(i)})
			}
		}
	}
	return all
}

func (r *report) workload(name string) (w workload, found bool) {
	i := slices.IndexFunc(r.workloads, func(w workload) bool { return w.name == name })
	if i < 0 {
		return w, false
	}
	return r.workloads[i], true
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

// regions returns the generated parts of the page, by name.
func (r *report) regions() map[string]string {
	if !r.setup.inFull {
		return map[string]string{r.setup.name: r.overview()}
	}
	regions := map[string]string{"machine": r.machine(), "summary": r.summary()}
	for _, s := range r.sections() {
		regions[s.name] = r.section(s)
	}
	return regions
}

// text returns the report for a terminal, with everything that was measured.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# On %s\n\n", r.setup.phrase)
	if r.RoundTrips != (roundTrips{}) {
		b.WriteString(wrap(r.delay()) + "\n\n")
	}
	for _, w := range r.inOrder() {
		if len(r.Samples[w.name]) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s\n\n%s", w.name, r.table(w.workload))
		if r.Against == "" {
			b.WriteString(r.verdict(w.workload))
		}
		b.WriteString("\n")
	}
	if r.Against != "" {
		b.WriteString(r.against())
	}
	return b.String()
}

func (r *report) charts() map[string]chart {
	all := map[string]chart{}
	if !r.setup.inFull {
		return all
	}
	for _, s := range r.sections() {
		w, _ := r.workload(s.workloads[0])
		all[s.name] = r.chart(s, s.title, s.axis, w.figure)
		if s.name == "queue" {
			all["queue-bytes"] = r.chart(s, "Bytes that a hand-over moves", "bytes to and from the server; less is better", "bytes")
		}
	}
	return all
}

func (r *report) chart(s section, title, axis, figure string) chart {
	c := chart{title: title, axis: axis, log: s.log}
	for i, name := range s.workloads {
		p := panel{title: s.panels[i]}
		for _, x := range r.competitors {
			if v := r.spreadOf(name, x.name, figure); v.N > 0 && x.name != s.uncharted {
				p.bars = append(p.bars, bar{withoutMarkup(x.label), classes[x.kind], v})
			}
		}
		c.panels = append(c.panels, p)
	}
	return c
}

var classes = map[kind]string{ours: "ours", variant: "variant", peer: "peer", reference: "reference"}

// withoutMarkup removes the backquotes, which mark code in Markdown.
func withoutMarkup(label string) string { return strings.ReplaceAll(label, "`", "") }

func (r *report) section(s section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n![%s](%s/%s.svg)\n", s.title, chartDir, s.name)
	for i, name := range s.workloads {
		w, _ := r.workload(name)
		if s.panels[i] != "" {
			fmt.Fprintf(&b, "\n**%s**\n", capitalized(s.panels[i]))
		}
		fmt.Fprintf(&b, "\n%s%s", r.table(w), r.verdict(w))
	}
	if s.name == "queue" {
		b.WriteString("\n" + r.growth(s))
	}
	return b.String() + "\n"
}

func capitalized(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// column is a column of a table. It shows one figure of each competitor.
type column struct {
	header, figure string
	write          func(stats.Spread) string
}

// columns returns the columns of the table of a workload.
func columns(w workload) (list []column) {
	one := singular(w.unit)
	add := func(header, figure string, write func(stats.Spread) string) {
		list = append(list, column{header, figure, write})
	}
	switch w.figure {
	case "p50":
		add("p50, us", "p50", spread)
		add("p90, us", "p90", median)
		add("p99, us", "p99", median)
	case "won":
		add("locks taken/s", "won", spread)
		add(w.unit+"/s", "rate", median)
	default:
		add(w.unit+"/s", "rate", spread)
	}
	if w.plan.Kind == work.Loop && w.plan.Contenders > 1 {
		add("smallest share", "least", median)
		add("largest share", "most", median)
	}
	add("requests per "+one, "requests", median)
	add("packets", "packets", median)
	add("bytes", "bytes", median)
	if w.plan.Kind == work.Drain {
		add("bytes to join", "join bytes", median)
	}
	add("client CPU, us", "cpu", median)
	add("allocations", "allocs", median)
	return list
}

func singular(units string) string {
	if one, found := strings.CutSuffix(units, "ies"); found {
		return one + "y"
	}
	return strings.TrimSuffix(units, "s")
}

const notMeasured = "This was not measured.\n"

func (r *report) table(w workload) string {
	list := columns(w)
	header := []string{"", "speed, dlock = 1"}
	for _, c := range list {
		header = append(header, c.header)
	}
	var rows [][]string
	for _, x := range r.competitors {
		if len(r.known(w.name, x.name, w.figure)) == 0 {
			continue
		}
		row := []string{x.label, r.relation(w, x)}
		for _, c := range list {
			row = append(row, c.write(r.spreadOf(w.name, x.name, c.figure)))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return notMeasured
	}
	text := table(header, rows)
	if absent := r.absent(w); absent != "" {
		text += "\n" + wrap(absent) + "\n"
	}
	return text
}

func (r *report) relation(w workload, x competitor) string {
	if x.kind == ours {
		return "1"
	}
	return spread(r.speeds(w, x.name, "dlock"))
}

// absent says which competitors have no figures for a workload, or not for all rounds,
// and why. It returns an empty text if there are none.
func (r *report) absent(w workload) string {
	var all []string
	for _, x := range r.competitors {
		fault := r.Faults[w.name][x.name]
		switch why, cannot := w.cannot[x.name]; {
		case !w.isFor(x):
		case cannot:
			all = append(all, x.label+" was not measured here, because it "+why+".")
		case r.Missing[x.name] != "":
			all = append(all, x.label+" was not measured ("+r.Missing[x.name]+").")
		case fault != "" && r.failed(w.name, x.name) > 0:
			all = append(all, fmt.Sprintf("%s failed in %d of %d rounds (%s). These rounds do not count.", x.label, r.failed(w.name, x.name), r.Settings.Rounds, fault))
		}
	}
	return strings.Join(all, " ")
}

// failed returns the number of rounds of workload w in which competitor c has no
// result.
func (r *report) failed(w, c string) (n int) {
	for _, s := range r.Samples[w][c] {
		if s == nil {
			n++
		}
	}
	return n
}
