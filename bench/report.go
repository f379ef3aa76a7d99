package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const pageDir = "../docs/use"

// publish updates the tables of benchmarks.md from the saved results.
func publish(docs string) error {
	path := filepath.Join(docs, "benchmarks.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(page)
	for _, s := range setups() {
		part := "\nThis was not measured.\n\n"
		found, err := load(docs, s.name)
		switch {
		case err == nil:
			found.Results = onPage(found.Results)
			part = fmt.Sprintf("\nMeasured on %s in %d rounds.\n\n%s\n",
				found.Date.Format("2 January 2006"), found.Rounds, found.overview(competitors(), "dlock-list", "curator-rw", "kazoo"))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if text, err = fill(text, s.name, part); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// onPage returns the results worth showing. In "readers", Curator's read-write
// lock stands in for its mutex, which has no shared mode.
func onPage(all []result) (shown []result) {
	for _, x := range all {
		if slices.Contains([]string{"contend-32", "queue-100", "queue-400", "process", "processes", "try-free"}, x.Workload) {
			continue
		}
		shown = append(shown, x)
		if x.Lock == "curator-rw" && x.Workload == "readers" {
			x.Lock = "curator"
			shown = append(shown, x)
		}
	}
	return shown
}

func fill(page, name, text string) (string, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	before, rest, found := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("the page has no marks for the part %q", name)
	}
	return before + begin + text + end + after, nil
}

func (r *run) text() string {
	var b strings.Builder
	found := r.results()
	fmt.Fprintf(&b, "# On %s\n\nMedian time or speed, and requests for each lock:\n\n%s\n", r.setup.phrase, found.overview(r.competitors))
	fmt.Fprintf(&b, "All medians: p50 in us, rate and won for each second, the others for each lock\n\n%s\n", found.details())
	return b.String()
}

func (r *results) overview(all []competitor, hidden ...string) string {
	taking := filter(all, func(c competitor) bool {
		return slices.ContainsFunc(r.Results, func(x result) bool { return x.Lock == c.name && len(x.Figures) > 0 })
	})
	columns := filter(taking, func(c competitor) bool { return !slices.Contains(hidden, c.name) })
	header := slices.Concat([]string{"Workload"}, mapped(columns, func(c competitor) string { return c.label }), []string{"dlock's speed, best peer = 1"})
	var rows [][]string
	for _, w := range workloads() {
		measured := map[string]result{}
		for _, x := range r.Results {
			if x.Workload == w.name {
				measured[x.Lock] = x
			}
		}
		if len(measured) > 0 {
			cells := mapped(columns, func(c competitor) string { return measured[c.name].cell(w) })
			rows = append(rows, slices.Concat([]string{w.title}, cells, []string{spread(againstBest(taking, measured))}))
		}
	}
	return table(header, rows)
}

func (x result) cell(w workload) string {
	switch {
	case len(x.Figures) > 0:
		text := fmt.Sprintf("%s%s, %s", number(x.Figures[w.figure]), w.suffix(), number(x.Figures["requests"]))
		if x.Failed > 0 {
			text += fmt.Sprintf(" (%d failed)", x.Failed)
		}
		return text
	case x.Failed > 0:
		return "failed"
	}
	return "-"
}

// againstBest returns dlock's speed relative to its strongest peer, which is
// the one with the smallest median ratio.
func againstBest(all []competitor, measured map[string]result) (best []float64) {
	for _, c := range all {
		speed := measured[c.name].DlockSpeed
		if c.kind == peer && len(speed) > 0 && (best == nil || speed[0] < best[0]) {
			best = speed
		}
	}
	return best
}

// spread formats a median, with the smallest and largest value in brackets.
func spread(s []float64) string {
	if len(s) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s–%s)", number(s[0]), number(s[1]), number(s[2]))
}

func (r *results) details() string {
	var rows [][]string
	for _, x := range r.Results {
		row := []string{x.Workload, x.Lock, spread(x.DlockSpeed)}
		for _, f := range figures {
			v, known := x.Figures[f]
			if !known {
				v = math.NaN()
			}
			row = append(row, number(v))
		}
		rows = append(rows, row)
	}
	return table(slices.Concat([]string{"workload", "lock", "dlock's speed, lock = 1"}, figures), rows)
}

// number formats v with three significant digits, or more if its integral part
// has more, and separates thousands with commas.
func number(v float64) string {
	digits := 2
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 99.95:
		digits = 0
	case a >= 9.995:
		digits = 1
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	whole, _, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func table(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(header)
	b.WriteString("|---|" + strings.Repeat("---:|", len(header)-1) + "\n")
	for _, cells := range rows {
		line(cells)
	}
	return b.String()
}
