package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// number formats v with three significant digits, or more if its integral part
// has more.
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
	return thousands(strconv.FormatFloat(v, 'f', digits, 64))
}

// thousands separates thousands with commas.
func thousands(s string) string {
	whole, _, _ := strings.Cut(s, ".")
	digits := len(strings.TrimPrefix(whole, "-"))
	for i := len(whole) - 3; digits > 3; i, digits = i-3, digits-3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// spread formats the median, followed by the smallest and the largest value in
// brackets.
func spread(s stats.Spread) string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
}

func median(s stats.Spread) string {
	if s.N == 0 {
		return "-"
	}
	return number(s.Median)
}

// table returns a Markdown table. All columns except the first are aligned
// right.
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
