package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
)

const legend = "  . waits   r holds it shared   W holds it exclusive   x lost, failed or killed"

// drawTimeline prints one row per worker, at most 80 characters wide.
func drawTimeline(w io.Writer, attempts []*attempt) {
	var end time.Duration
	for _, t := range attempts {
		end = max(end, t.Ended)
	}
	const columns = 60
	column := (end / columns).Truncate(time.Millisecond) + time.Millisecond
	fmt.Fprintf(w, "\nThe time line; a column is %v\n\n", column)
	for _, t := range attempts {
		fmt.Fprintf(w, "  %s  %s\n", t.label(), row(t, column))
	}
	fmt.Fprintf(w, "\n%s\n\n", legend)
}

// row draws an attempt. A column shows the state at the middle of its time
// span, so that consecutive holds never share a column.
func row(t *attempt, column time.Duration) string {
	var b strings.Builder
	hold := map[dlock.Mode]string{dlock.Shared: "r", dlock.Exclusive: "W"}[t.Mode]
	for middle := column / 2; middle < t.Ended; middle += column {
		switch {
		case middle < t.Asked:
			b.WriteString(" ")
		case !t.Held || middle < t.Granted:
			b.WriteString(".")
		default:
			b.WriteString(hold)
		}
	}
	if t.Outcome != served {
		b.WriteString("x")
	}
	return b.String()
}
