package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// number writes a number with three significant digits, or with all digits before the
// point if there are more.
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

// thousands separates the thousands of a number with commas.
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

// spread writes the median and, in brackets, the smallest and the largest value.
func spread(s stats.Spread) string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
}

// median writes the median only.
func median(s stats.Spread) string {
	if s.N == 0 {
		return "-"
	}
	return number(s.Median)
}

// wrap breaks a paragraph into lines of at most 100 columns.
func wrap(paragraph string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(paragraph) {
		switch width := utf8.RuneCountInString(word); {
		case column == 0:
			column = width
		case column+1+width > 100:
			b.WriteString("\n")
			column = width
		default:
			b.WriteString(" ")
			column += 1 + width
		}
		b.WriteString(word)
	}
	return b.String()
}

// table writes a Markdown table. The first column is aligned to the left, the others
// to the right.
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
