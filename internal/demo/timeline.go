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

// The marks that show the state of an attempt in the columns of its row.
const (
	markWaits     = '.'
	markShared    = 'r'
	markExclusive = 'W'
	markEnd       = 'x' // end of an attempt that gave up, lost the lock, failed or was killed
)

const legend = "  . waits   r holds it shared   W holds it exclusive   x gave up, lost, failed or killed"

const maxRows = 200

// timeline maps times to columns of text. A column shows the state at the
// middle of its time span, so that consecutive holds never share a column.
type timeline struct {
	columns int
	column  time.Duration
}

// drawTimeline prints one row per attempt, in queue order. Attempts without a
// place in the queue come last.
func drawTimeline(w io.Writer, attempts []*attempt, width int) {
	if len(attempts) == 0 {
		return
	}
	rows := slices.SortedStableFunc(slices.Values(attempts), inQueueOrder)
	labels := 0
	for _, t := range attempts {
		labels = max(labels, len(t.label()))
	}
	l := newTimeline(attempts, max(20, width-labels-4))
	fmt.Fprintf(w, "\nHolds in order of arrival; a column is %v\n\n  %-*s  %s\n", l.column, labels, "", l.axis())
	for _, t := range rows[:min(maxRows, len(rows))] {
		fmt.Fprintf(w, "  %-*s  %s\n", labels, t.label(), l.row(t))
	}
	if more := len(rows) - maxRows; more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
	fmt.Fprintf(w, "\n%s\n\n", legend)
}

// inQueueOrder compares attempts by their tokens, that is, by their places in
// the queue. Attempts without a place come last, because their token 0 minus 1
// wraps around.
func inQueueOrder(a, b *attempt) int {
	return cmp.Or(cmp.Compare(uint64(a.Place.Token-1), uint64(b.Place.Token-1)), cmp.Compare(a.Asked, b.Asked))
}

func newTimeline(attempts []*attempt, columns int) timeline {
	var end time.Duration
	for _, t := range attempts {
		end = max(end, t.Ended)
	}
	column := roundUp(end/time.Duration(columns) + 1)
	return timeline{columns: min(columns, int(end/column)+1), column: column}
}

// roundUp returns the smallest round duration that is at least d: 1, 1.5, 2, 3,
// 5 or 7 times a power of ten microseconds.
func roundUp(d time.Duration) time.Duration {
	for unit := time.Microsecond; ; unit *= 10 {
		for _, half := range []time.Duration{2, 3, 4, 6, 10, 14} {
			if round := unit * half / 2; round >= d {
				return round
			}
		}
	}
}

func (l timeline) row(t *attempt) string {
	marks := []rune(strings.Repeat(" ", l.columns))
	end := t.Ended
	if t.Held {
		end = t.Granted
	}
	l.fill(marks, t.Asked, end, markWaits)
	mark := markShared
	if t.Mode == dlock.Exclusive {
		mark = markExclusive
	}
	if t.Held && !l.fill(marks, t.Granted, t.Ended, mark) {
		marks[l.at(t.Granted)] = mark // even a short hold must be visible
	}
	if t.Outcome != served && t.Outcome != interrupted {
		marks[l.at(t.Ended)] = markEnd
	}
	return strings.TrimRight(string(marks), " ")
}

// fill sets the mark of all columns whose middle lies between two times, and
// reports whether there are any.
func (l timeline) fill(marks []rune, from, to time.Duration, mark rune) (some bool) {
	for i := range marks {
		if middle := l.column*time.Duration(i) + l.column/2; from <= middle && middle < to {
			marks[i], some = mark, true
		}
	}
	return some
}

func (l timeline) at(d time.Duration) int { return min(l.columns-1, int(d/l.column)) }

// axis returns the time axis, with a time at about every tenth column.
func (l timeline) axis() string {
	const apart = 10
	step := roundUp(l.column * apart)
	var axis string
	for d := time.Duration(0); int(d/l.column) < l.columns; d += step {
		text := "|" + d.String()
		if at := int(d / l.column); len(axis) <= at && at+len(text) <= max(l.columns, len(text)) {
			axis += strings.Repeat(" ", at-len(axis)) + text + " "
		}
	}
	return strings.TrimRight(axis, " ")
}
