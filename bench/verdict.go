package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// standing is the result of this library in a workload.
type standing int

const (
	unknown standing = iota // there is no peer to compare with
	ahead                   // faster than every peer in every round; no round failed
	level                   // neither ahead nor behind
	behind                  // slower than the best peer in every round
)

// judge compares dlock with the peers, round by round. The best peer is the
// peer for which the median of dlock's relative speed is smallest.
func (r *report) judge(w workload) (best competitor, speed stats.Spread, st standing) {
	alwaysFaster := r.failed(w.name, "dlock") == 0
	for _, x := range r.competitors {
		if x.kind != peer {
			continue
		}
		v := r.speeds(w, "dlock", x.name)
		if v.N == 0 {
			continue
		}
		alwaysFaster = alwaysFaster && v.Min > 1
		if speed.N == 0 || v.Median < speed.Median {
			best, speed = x, v
		}
	}
	switch {
	case speed.N == 0:
		return best, speed, unknown
	case alwaysFaster:
		return best, speed, ahead
	case speed.Max < 1:
		return best, speed, behind
	}
	return best, speed, level
}

// verdict says which lock is ahead, whether dlock meets its target, and what the locks
// cost.
func (r *report) verdict(w workload) string {
	best, speed, st := r.judge(w)
	var list []string
	add := func(sentence string) {
		if sentence != "" {
			list = append(list, sentence)
		}
	}
	switch st {
	case unknown:
		add("There was no other lock to compare with.")
	case ahead:
		add(fmt.Sprintf("dlock is ahead of all peers. It is %s times as fast as the best of them, %s.", spread(speed), best.label))
	case behind:
		add(fmt.Sprintf("**%s is ahead of dlock.** dlock reaches %s of its speed.", best.label, spread(speed)))
	case level:
		add(fmt.Sprintf("dlock and %s are about level. dlock reaches %s of its speed, and is not faster than every peer in every round.", best.label, spread(speed)))
	}
	add(r.levelTarget(w, st))
	add(r.bareTarget(w))
	if st == level || st == behind {
		add(fmt.Sprintf("Costs per %s: %s for dlock; %s for %s.", singular(w.unit), r.costs(w, "dlock"), r.costs(w, best.name), best.label))
	}
	add(r.cheaper(w))
	return "\n" + wrap(strings.Join(list, " ")) + "\n"
}

// levelTarget says whether dlock is level with the best peer where that is the target.
func (r *report) levelTarget(w workload, st standing) string {
	if !w.levelOnOneServer || r.setup.name != "one" || st == unknown {
		return ""
	}
	return "The target for this workload is to be level with the best peer, and dlock " + meets(st != behind) + " it."
}

// maxOfBare is the target for a free lock: the longest time that it may take, in
// relation to the two bare requests.
const maxOfBare = 1.05

// bareTarget says whether a free lock takes little more than the two bare requests. In
// an ensemble there is no target: the times also depend on which member a session uses.
func (r *report) bareTarget(w workload) string {
	times := r.speeds(w, "bare", "dlock")
	if times.N == 0 {
		return ""
	}
	text := fmt.Sprintf("dlock takes %s times as long as the two bare requests.", spread(times))
	if r.setup.members == 1 {
		met := math.Round(times.Median*100)/100 <= maxOfBare
		text += fmt.Sprintf(" The target is at most %v times, and dlock %s it.", maxOfBare, meets(met))
	}
	return text
}

func meets(met bool) string {
	if met {
		return "meets"
	}
	return "misses"
}

// costs are the figures, other than the speed, that the verdict compares.
var costs = []struct{ figure, name string }{
	{"requests", "requests"}, {"packets", "packets"}, {"bytes", "bytes"}, {"cpu", "us of client CPU"}, {"allocs", "allocations"},
}

func (r *report) costs(w workload, c string) string {
	var all []string
	for _, cost := range costs {
		if v := r.spreadOf(w.name, c, cost.figure); v.N > 0 {
			all = append(all, number(v.Median)+" "+cost.name)
		}
	}
	return strings.Join(all, ", ")
}

// cheaper names the costs, such as requests, that are at least a twentieth
// lower for some peer than for dlock. It returns an empty text if there are
// none.
func (r *report) cheaper(w workload) string {
	var all []string
	for _, cost := range costs {
		own := r.spreadOf(w.name, "dlock", cost.figure)
		least, label := own, ""
		for _, x := range r.competitors {
			v := r.spreadOf(w.name, x.name, cost.figure)
			if x.kind == peer && v.N > 0 && v.Median < least.Median && v.Median < 0.95*own.Median {
				least, label = v, x.label
			}
		}
		if label != "" {
			all = append(all, fmt.Sprintf("%s (%s %s, dlock %s)", cost.name, label, number(least.Median), number(own.Median)))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "For each " + singular(w.unit) + ", at least one peer needs less than dlock of the following: " + strings.Join(all, ", ") + "."
}

// summary returns the table at the top of the page.
func (r *report) summary() string {
	var rows [][]string
	var count standings
	for _, w := range r.inOrder() {
		best, speed, st := r.judge(w.workload)
		if st == unknown {
			continue
		}
		count.add(st)
		rows = append(rows, []string{
			w.title,
			median(r.spreadOf(w.name, "dlock", w.figure)) + w.suffix(),
			median(r.spreadOf(w.name, best.name, w.figure)) + w.suffix(),
			best.label,
			spread(speed),
			st.String(),
		})
	}
	return "\n" + count.sentence() + "\n\n" +
		table([]string{"Workload", "dlock", "best peer", "which is", "dlock's speed, best peer = 1", "dlock is"}, rows) + "\n"
}

func (st standing) String() string {
	return map[standing]string{ahead: "ahead", level: "about level", behind: "**behind**"}[st]
}

// standings counts the workloads by their standing.
type standings [behind + 1]int

func (s *standings) add(st standing) { s[st]++ }

func (s *standings) sentence() string {
	return wrap(fmt.Sprintf("Of %d workloads, dlock is ahead of every peer in %d, about level with the best peer in %d, and behind it in %d.",
		s[ahead]+s[level]+s[behind], s[ahead], s[level], s[behind]))
}

// overview returns the table of a setup whose workloads have no sections of
// their own. Each workload has a line, and each competitor has a column.
func (r *report) overview() string {
	var taking []competitor
	header := []string{"Workload"}
	for _, x := range r.competitors {
		if r.measured(x) {
			taking = append(taking, x)
			header = append(header, x.label)
		}
	}
	var rows [][]string
	var count standings
	for _, w := range r.inOrder() {
		if len(r.Samples[w.name]) == 0 {
			continue
		}
		row := []string{w.title}
		for _, x := range taking {
			row = append(row, r.cell(w.workload, x))
		}
		_, speed, st := r.judge(w.workload)
		count.add(st)
		rows = append(rows, append(row, spread(speed), st.String()))
	}
	if len(rows) == 0 {
		return "\n" + notMeasured + "\n"
	}
	return "\n" + wrap(r.measurement()+" "+count.sentence()) + "\n\n" +
		table(append(header, "dlock's speed, best peer = 1", "dlock is"), rows) + r.overviewNotes() + "\n"
}

// measured reports whether the competitor has figures for any workload.
func (r *report) measured(x competitor) bool {
	for _, w := range r.workloads {
		if len(r.known(w.name, x.name, w.figure)) > 0 {
			return true
		}
	}
	return false
}

// cell returns an entry of an overview: the figure of a competitor and its
// requests.
func (r *report) cell(w workload, x competitor) string {
	v := r.spreadOf(w.name, x.name, w.figure)
	if v.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%s%s, %s requests", median(v), w.suffix(), median(r.spreadOf(w.name, x.name, "requests")))
}

// overviewNotes returns the paragraphs below an overview: which locks are
// missing, and the verdict on a free lock.
func (r *report) overviewNotes() string {
	var notes string
	for _, w := range r.inOrder() {
		if absent := r.absent(w.workload); absent != "" {
			notes += "\n" + wrap(w.title+". "+absent) + "\n"
		}
		if bare := r.bareTarget(w.workload); bare != "" {
			notes += "\n" + wrap(w.title+". "+bare) + "\n"
		}
	}
	return notes
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

// growth returns the table of the bytes per hand-over, by the number of
// waiters.
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
	return fmt.Sprintf("![Bytes that a hand-over moves](%s/queue-bytes.svg)\n\n%s", chartDir, table(append(header, "last / first"), rows))
}

// machine returns the table that describes the machine and the run.
func (r *report) machine() string {
	rows := [][]string{{"Date", r.Date.UTC().Format("2 January 2006, 15:04 UTC")}}
	for _, f := range r.Machine {
		rows = append(rows, []string{f.Name, f.Value})
	}
	rows = append(rows,
		[]string{"Rounds", fmt.Sprint(r.Settings.Rounds)},
		[]string{"Session timeout of all locks", fmt.Sprintf("%d s", r.Settings.SessionSeconds)},
		[]string{"The run took", r.Took})
	var b strings.Builder
	b.WriteString("\n| | |\n|---|---|\n")
	for _, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String() + "\n"
}
