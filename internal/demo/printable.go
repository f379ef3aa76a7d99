package demo

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPrinted is longer than any name that dlock makes, and than most messages, in bytes.
const maxPrinted = 1024

// printable quotes a name that would not print as it is, and cuts one that is too long: names come from anybody who may
// write to the store.
func printable(name string) string {
	if len(name) > maxPrinted {
		const end = 32 // where the sequence is
		return fmt.Sprintf("%q...%q (%d bytes)", name[:maxPrinted-end], name[len(name)-end:], len(name))
	}
	if q := strconv.Quote(name); len(q) != len(name)+2 {
		return q
	}
	return name
}

// clean makes one printable line of a message that may contain anything, and as much as it likes.
func clean(message string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(message), " ") {
		if b.Len() > 8*maxPrinted {
			return fmt.Sprintf("%s... (%d bytes)", &b, len(message))
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// cleanLines is clean for a message that may have lines.
func cleanLines(message string) string {
	lines := strings.Split(message, "\n")
	for i, line := range lines {
		lines[i] = clean(line)
	}
	return strings.Join(lines, "\n")
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
