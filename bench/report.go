package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
	"github.com/dlock-go/dlock/bench/internal/work"
)

// report turns results into words, tables and charts. Every sentence that depends on figures is
// made here, from the figures.
type report struct {
	*results
	workloads   []workload
	competitors []competitor
}

func newReport(found *results) *report {
	taking := competitors()
	if found.Against != "" {
		taking = withOlder(taking, revision{label: found.Against})
	}
	return &report{found, workloads(), taking}
}

// section is a part of the page, for one or several workloads.
type section struct {
	name      string
	title     string // of the chart
	unit      string
	figure    string // what the chart shows
	workloads []string
	panels    []string
	log       bool   // the chart's scale is logarithmic
	uncharted string // a competitor in the table that would make the others' bars vanish
}

var sections = []section{
	{"free", "A free lock: lock and unlock", "microseconds, median; less is better", "p50", []string{"free"}, []string{""}, false, "dlock-retention"},
	{"contend", "Sessions that contend for one lock", "acquisitions per second; more is better", "rate",
		[]string{"contend-2", "contend-8", "contend-32"}, []string{"2 sessions", "8 sessions", "32 sessions"}, false, ""},
	{"queue", "A queue that is drained", "hand-overs per second; more is better", "rate",
		[]string{"queue-100", "queue-200", "queue-400", "queue-1000"}, []string{"100 wait", "200 wait", "400 wait", "1,000 wait"}, false, ""},
	{"readers", "8 sessions, 95% readers", "acquisitions per second; more is better", "rate", []string{"readers"}, []string{""}, false, ""},
	{"process", "64 contenders of one process or of two", "acquisitions per second; more is better", "rate",
		[]string{"process", "processes"}, []string{"one process, 64 contenders", "two processes, 32 contenders each"}, true, ""},
	{"try-held", "8 sessions that try a lock which is held", "tries per second; more is better", "rate", []string{"try-held"}, []string{""}, false, ""},
	{"try-free", "8 sessions that try, unlock and try again", "locks won per second; more is better", "won", []string{"try-free"}, []string{""}, false, ""},
	{"pass", "From release to grant", "microseconds, median; less is better", "p50", []string{"pass"}, []string{""}, false, ""},
}

func (s section) lessIsBetter() bool { return s.figure == "p50" }

// suffix is the unit of the section's figure.
func (s section) suffix() string {
	if s.lessIsBetter() {
		return " us"
	}
	return "/s"
}

func (r *report) workload(name string) workload {
	i := slices.IndexFunc(r.workloads, func(w workload) bool { return w.name == name })
	return r.workloads[i]
}

// spreadOf sums up the rounds that have the figure.
func (r *report) spreadOf(w, c, figure string) stats.Spread { return stats.Of(r.known(w, c, figure)) }

// speeds returns how fast a competitor was in relation to another one, round by round.
func (r *report) speeds(s section, w, c, other string) stats.Spread {
	return stats.Of(r.ratios(s, w, c, other))
}

// ratios are the speeds round by round.
func (r *report) ratios(s section, w, c, other string) []float64 {
	above, below := r.values(w, c, s.figure), r.values(w, other, s.figure)
	if s.lessIsBetter() {
		above, below = below, above
	}
	return stats.Ratios(above, below)
}

// regions are the generated parts of the page.
func (r *report) regions() map[string]string {
	regions := map[string]string{"machine": r.machine(), "summary": r.summary()}
	for _, s := range sections {
		regions[s.name] = r.section(s)
	}
	return regions
}

// text is the report for a terminal: what was measured, and nothing else.
func (r *report) text() string {
	var b strings.Builder
	for _, s := range sections {
		for _, name := range s.workloads {
			if len(r.Samples[name]) == 0 {
				continue
			}
			fmt.Fprintf(&b, "%s\n\n%s\n", name, r.table(s, r.workload(name)))
			if r.Against == "" {
				b.WriteString(r.verdict(s, name) + "\n")
			}
		}
	}
	return b.String()
}

func (r *report) charts() map[string]chart {
	all := map[string]chart{}
	for _, s := range sections {
		all[s.name] = r.chart(s, s.title, s.unit, s.figure)
		if s.name == "queue" {
			all["queue-bytes"] = r.chart(s, "Bytes that a hand-over moves", "bytes to and from the server; less is better", "bytes")
		}
	}
	return all
}

func (r *report) chart(s section, title, unit, figure string) chart {
	c := chart{title: title, unit: unit, log: s.log}
	for i, name := range s.workloads {
		p := panel{title: s.panels[i]}
		for _, x := range r.competitors {
			if v := r.spreadOf(name, x.name, figure); v.N > 0 && x.name != s.uncharted {
				p.bars = append(p.bars, bar{plain(x.label), classes[x.kind], v})
			}
		}
		c.panels = append(c.panels, p)
	}
	return c
}

var classes = map[kind]string{ours: "ours", variant: "variant", peer: "peer", orienting: "orienting"}

// plain takes the code marks of Markdown out.
func plain(label string) string { return strings.ReplaceAll(label, "`", "") }

func (r *report) section(s section) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n![%s](%s/%s.svg)\n", s.title, charts, s.name)
	for i, name := range s.workloads {
		if s.panels[i] != "" {
			fmt.Fprintf(&b, "\n**%s**\n", upper(s.panels[i]))
		}
		fmt.Fprintf(&b, "\n%s\n%s", r.table(s, r.workload(name)), r.verdict(s, name))
	}
	if s.name == "queue" {
		b.WriteString("\n" + r.growth(s))
	}
	return b.String() + "\n"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// column is a figure in a table.
type column struct {
	header, figure string
	write          func(stats.Spread) string
}

// columns returns what there is to tell about a workload.
func columns(s section, w workload) (list []column) {
	one := singular(w.unit)
	add := func(header, figure string, write func(stats.Spread) string) {
		list = append(list, column{header, figure, write})
	}
	if s.lessIsBetter() {
		add("p50, us", "p50", spread)
		add("p90, us", "p90", median)
		add("p99, us", "p99", median)
	}
	if s.figure == "won" {
		add("won/s", "won", spread)
		add(w.unit+"/s", "rate", median)
	}
	if s.figure == "rate" {
		add(w.unit+"/s", "rate", spread)
	}
	if w.plan.Kind == work.Loop && w.plan.Contenders > 1 {
		add("smallest share", "least", median)
		add("largest", "most", median)
	}
	add("requests per "+one, "requests", median)
	add("packets", "packets", median)
	add("bytes", "bytes", median)
	if w.plan.Kind == work.Drain {
		add("bytes to queue up", "join bytes", median)
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

func (r *report) table(s section, w workload) string {
	list := columns(s, w)
	header := []string{"", "speed, dlock = 1"}
	for _, c := range list {
		header = append(header, c.header)
	}
	var rows [][]string
	for _, x := range r.competitors {
		if len(r.known(w.name, x.name, s.figure)) == 0 {
			continue
		}
		row := []string{x.label, r.relation(s, w.name, x)}
		for _, c := range list {
			row = append(row, c.write(r.spreadOf(w.name, x.name, c.figure)))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return "This was not measured.\n"
	}
	return table(header, rows) + r.absent(w)
}

func (r *report) relation(s section, w string, x competitor) string {
	if x.kind == ours {
		return "1"
	}
	return spread(r.speeds(s, w, x.name, "dlock"))
}

// absent tells who is not in a table, and why.
func (r *report) absent(w workload) string {
	var all []string
	for _, x := range r.competitors {
		fault := r.Faults[w.name][x.name]
		switch why, without := w.without[x.name]; {
		case !w.meantFor(x):
		case without:
			all = append(all, x.label+" "+why)
		case r.Missing[x.name] != "" && !without:
			all = append(all, x.label+" could not be had ("+r.Missing[x.name]+")")
		case fault != "" && r.failed(w.name, x.name) > 0:
			all = append(all, fmt.Sprintf("%s: %d of %d rounds are missing after a fault (%s)", x.label, r.failed(w.name, x.name), r.Settings.Rounds, fault))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "\nNot in the table, or not in full: " + strings.Join(all, "; ") + ".\n"
}

func (r *report) failed(w, c string) (n int) {
	for _, s := range r.Samples[w][c] {
		if s == nil {
			n++
		}
	}
	return n
}
