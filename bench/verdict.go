package main

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// standing is how this library did in a workload.
type standing int

const (
	unknown standing = iota // nothing to compare
	ahead                   // in every round faster than every peer
	level                   // neither ahead nor behind
	behind                  // in every round slower than the best peer
)

// judge compares round by round. The best peer is the one with the best median; ahead means faster than
// every peer in every round.
func (r *report) judge(s section, w string) (best competitor, speed stats.Spread, st standing) {
	always := true
	for _, x := range r.competitors {
		if x.kind != peer {
			continue
		}
		v := r.speeds(s, w, "dlock", x.name)
		if v.N == 0 {
			continue
		}
		always = always && v.Min > 1
		if speed.N == 0 || v.Median < speed.Median {
			best, speed = x, v
		}
	}
	switch {
	case speed.N == 0:
		return best, speed, unknown
	case always:
		return best, speed, ahead
	case speed.Max < 1:
		return best, speed, behind
	}
	return best, speed, level
}

// verdict says who is ahead, and what both need for it.
func (r *report) verdict(s section, w string) string {
	best, speed, st := r.judge(s, w)
	var b strings.Builder
	switch st {
	case unknown:
		return "\nNo other lock was there to compare with.\n"
	case ahead:
		fmt.Fprintf(&b, "\ndlock is ahead of all peers: %s times as fast as the best of them, %s.", spread(speed), best.label)
	case behind:
		fmt.Fprintf(&b, "\n**%s is ahead of dlock**, which has %s of its speed.", best.label, spread(speed))
	case level:
		fmt.Fprintf(&b, "\ndlock and %s are about level: dlock has %s of its speed, and was not ahead of every peer in every round.", best.label, spread(speed))
	}
	if st != ahead {
		fmt.Fprintf(&b, " What they need for it: dlock %s; %s %s.", r.needs(w, "dlock"), best.label, r.needs(w, best.name))
	}
	if cheaper := r.cheaper(w); cheaper != "" {
		b.WriteString(" " + cheaper)
	}
	return b.String() + "\n"
}

// costs are what a faster lock may have been bought with.
var costs = []struct{ figure, name string }{
	{"requests", "requests"}, {"packets", "packets"}, {"bytes", "bytes"}, {"cpu", "us of client CPU"}, {"allocs", "allocations"},
}

func (r *report) needs(w, c string) string {
	var all []string
	for _, cost := range costs {
		if v := r.spreadOf(w, c, cost.figure); v.N > 0 {
			all = append(all, number(v.Median)+" "+cost.name)
		}
	}
	return strings.Join(all, ", ")
}

// cheaper names the peers that need less of something than dlock does: a twentieth less, or more.
func (r *report) cheaper(w string) string {
	one := singular(r.workload(w).unit)
	var all []string
	for _, cost := range costs {
		own := r.spreadOf(w, "dlock", cost.figure)
		least, who := own, ""
		for _, x := range r.competitors {
			v := r.spreadOf(w, x.name, cost.figure)
			if x.kind == peer && v.N > 0 && v.Median < least.Median && v.Median < 0.95*own.Median {
				least, who = v, x.label
			}
		}
		if who != "" {
			all = append(all, fmt.Sprintf("%s %s (%s; dlock %s)", number(least.Median), cost.name, who, number(own.Median)))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "Less than dlock is needed elsewhere, per " + one + ": " + strings.Join(all, ", ") + "."
}

// summary is the table at the top of the page.
func (r *report) summary() string {
	var rows [][]string
	counts := map[standing]int{}
	for _, s := range sections {
		for i, name := range s.workloads {
			best, speed, st := r.judge(s, name)
			if st == unknown {
				continue
			}
			counts[st]++
			title := s.title
			if s.panels[i] != "" {
				title += ": " + s.panels[i]
			}
			rows = append(rows, []string{
				title,
				median(r.spreadOf(name, "dlock", s.figure)) + s.suffix(),
				median(r.spreadOf(name, best.name, s.figure)) + s.suffix(),
				best.label,
				spread(speed),
				map[standing]string{ahead: "ahead", level: "about level", behind: "**behind**"}[st],
			})
		}
	}
	words := fmt.Sprintf("\nOf %d workloads dlock is ahead of every peer in %d, about level with the best one in %d, and behind in %d.\n\n",
		len(rows), counts[ahead], counts[level], counts[behind])
	return words + table([]string{"Workload", "dlock", "best peer", "which is", "dlock's speed, best peer = 1", "dlock is"}, rows) + "\n"
}

// growth shows what a hand-over moves when more are waiting.
func (r *report) growth(s section) string {
	rows := [][]string{}
	for _, x := range r.competitors {
		row := []string{x.label}
		var bytes []float64
		for _, name := range s.workloads {
			v := r.spreadOf(name, x.name, "bytes")
			row = append(row, median(v))
			if v.N > 0 {
				bytes = append(bytes, v.Median)
			}
		}
		if len(bytes) < len(s.workloads) {
			continue
		}
		rows = append(rows, append(row, number(bytes[len(bytes)-1]/bytes[0])))
	}
	header := append([]string{"bytes per hand-over"}, s.panels...)
	return fmt.Sprintf("![Bytes that a hand-over moves](%s/queue-bytes.svg)\n\n%s", charts, table(append(header, "from the first to the last, times"), rows))
}

// machine describes where and when.
func (r *report) machine() string {
	rows := [][]string{{"Date", r.Date.UTC().Format("2 January 2006, 15:04 UTC")}}
	for _, f := range r.Machine {
		rows = append(rows, []string{f.Name, f.Value})
	}
	rows = append(rows,
		[]string{"Rounds", fmt.Sprint(r.Settings.Rounds)},
		[]string{"Session timeout of all", fmt.Sprintf("%d s", r.Settings.SessionSeconds)},
		[]string{"The run took", r.Took})
	var b strings.Builder
	b.WriteString("\n| | |\n|---|---|\n")
	for _, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String() + "\n"
}
