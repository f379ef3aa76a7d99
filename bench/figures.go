package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// number writes three digits that count, or all before the point.
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

// thousands puts commas into a number.
func thousands(s string) string {
	whole, fraction, found := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		fraction = "." + fraction
	}
	return sign + whole + fraction
}

// spread writes the median and, in brackets, from where to where the rounds go.
func spread(s stats.Spread) string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
}

// median writes the median alone.
func median(s stats.Spread) string {
	if s.N == 0 {
		return "-"
	}
	return number(s.Median)
}

// table writes a Markdown table; the first column is text, the others are numbers.
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
