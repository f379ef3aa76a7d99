package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

// What the columns of a row show.
const (
	markWaits     = '.'
	markShared    = 'r'
	markExclusive = 'W'
	markEnd       = 'x' // of a wait or a hold that ended otherwise than it should
)

const legend = "  . waits   r holds it shared   W holds it exclusive   x gave up, lost or failed"

// maxRows is how many rows a time line has.
const maxRows = 200

// minColumns is how many columns a row has on the narrowest of terminals.
const minColumns = 20

// timeline maps times to columns. Column i shows what was in the middle of it, so that no two holds
// that followed each other show in one column.
type timeline struct {
	columns int
	column  time.Duration
}

// drawTimeline draws a row for each attempt, in the order in which they joined the queue.
func drawTimeline(w io.Writer, attempts []*attempt, terminal int) {
	if len(attempts) == 0 {
		return
	}
	labels := 0
	for _, t := range attempts {
		labels = max(labels, len(t.label()))
	}
	labels = min(labels, max(terminal/3, 12))
	l := newTimeline(attempts, max(minColumns, terminal-labels-4))

	fmt.Fprintf(w, "\nWho held it when, in order of arrival; a column is %v\n\n", l.column)
	fmt.Fprintf(w, "  %-*s  %s\n", labels, "", l.axis())
	for _, t := range first(maxRows, byArrival(attempts)) {
		fmt.Fprintf(w, "  %-*s  %s\n", labels, tail(t.label(), labels), l.row(t))
	}
	if more := len(attempts) - maxRows; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	fmt.Fprintf(w, "\n%s\n\n", legend)
}

func newTimeline(attempts []*attempt, columns int) timeline {
	var end time.Duration
	for _, t := range attempts {
		end = max(end, t.ended)
	}
	column := roundUp(end/time.Duration(columns) + 1)
	return timeline{columns: min(columns, int(end/column)+1), column: column}
}

// roundUp returns the next round time: 1, 1.5, 2, 3, 5 or 7 times a power of ten.
func roundUp(d time.Duration) time.Duration {
	for unit := time.Microsecond; ; unit *= 10 {
		for _, half := range []time.Duration{2, 3, 4, 6, 10, 14} {
			if round := unit * half / 2; round >= d {
				return round
			}
		}
	}
}

// row shows a attempt.
func (l timeline) row(t *attempt) string {
	marks := []rune(strings.Repeat(" ", l.columns))
	if t.held {
		l.fill(marks, t.asked, t.granted, markWaits, false)
		mark := markShared
		if t.mode == dlock.Exclusive {
			mark = markExclusive
		}
		l.fill(marks, t.granted, t.ended, mark, true)
	} else {
		l.fill(marks, t.asked, t.ended, markWaits, true)
	}
	if t.outcome == timedOut || t.outcome == lost || t.outcome == failed {
		marks[l.at(t.ended)] = markEnd
	}
	return strings.TrimRight(string(marks), " ")
}

// fill marks the columns whose middle is in between, and one in any case where so much is wanted.
func (l timeline) fill(marks []rune, from, to time.Duration, mark rune, some bool) {
	found := false
	for i := range marks {
		if middle := l.column*time.Duration(i) + l.column/2; from <= middle && middle < to {
			marks[i], found = mark, true
		}
	}
	if some && !found {
		marks[l.at(from)] = mark
	}
}

func (l timeline) at(d time.Duration) int { return min(l.columns-1, int(d/l.column)) }

// axis has a time every so many columns.
func (l timeline) axis() string {
	const apart = 10
	step := roundUp(l.column * apart)
	marks := []byte(strings.Repeat(" ", l.columns+apart))
	end := 0
	for d := time.Duration(0); int(d/l.column) < l.columns; d += step {
		text := "|" + d.String()
		if at := int(d / l.column); at >= end && at+len(text) <= max(l.columns, len(text)) {
			end = at + copy(marks[at:], text) + 1
		}
	}
	return strings.TrimRight(string(marks), " ")
}

// byArrival puts whoever never had a place in the queue last.
func byArrival(attempts []*attempt) []*attempt {
	return slices.SortedStableFunc(slices.Values(attempts), func(a, b *attempt) int {
		return cmp.Or(-compareBool(a.place.Token != 0, b.place.Token != 0),
			cmp.Compare(a.place.Token, b.place.Token), cmp.Compare(a.asked, b.asked))
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// tail returns the end of a label that is too long: that is where labels differ.
func tail(label string, width int) string {
	if len(label) <= width {
		return label
	}
	return "~" + label[len(label)-width+1:]
}
