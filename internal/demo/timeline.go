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

// The marks in the columns of a row.
const (
	markWaits     = '.'
	markShared    = 'r'
	markExclusive = 'W'
	markEnd       = 'x' // the wait timed out, or the hold failed or was lost, or its process was killed
)

const legend = "  . waits   r holds it shared   W holds it exclusive   x gave up, lost, failed or killed"

// maxRows is the greatest number of rows of a time line.
const maxRows = 200

// minColumns is the number of columns of a row on a very narrow terminal.
const minColumns = 20

// timeline maps times to columns. A column shows the state at the middle of its
// time, so that two holds that followed each other never show in the same column.
type timeline struct {
	columns int
	column  time.Duration
}

// drawTimeline prints a row for each attempt, in the order in which they joined
// the queue.
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

	fmt.Fprintf(w, "\nHolds in order of arrival; a column is %v\n\n", l.column)
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

// row returns the row of an attempt, with a mark for each column.
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
	if t.outcome == timedOut || t.outcome == lost || t.outcome == failed || t.outcome == killed {
		marks[l.at(t.ended)] = markEnd
	}
	return strings.TrimRight(string(marks), " ")
}

// fill sets the marks of the columns whose middle is between the two times. If
// there is no such column, and the parameter some is true, it sets the mark of
// the column that contains the first of the two times.
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

// axis returns a line with a time every ten columns or so.
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

// byArrival sorts attempts by the order in which they joined the queue. Attempts
// that never joined it come last.
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

// tail returns a label, or only its end if it is longer than width: labels
// differ at their end.
func tail(label string, width int) string {
	if len(label) <= width {
		return label
	}
	return "~" + label[len(label)-width+1:]
}
