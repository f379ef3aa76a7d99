package demo

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPrinted is the length in bytes above which a name is cut. No name that
// dlock makes is so long.
const maxPrinted = 1024

// printable returns a name as it can be shown on a terminal: quoted if it has
// characters that do not print, and cut if it is too long. Any client of the store
// can have made the name.
func printable(name string) string {
	if len(name) > maxPrinted {
		const end = 32 // so many bytes of the end are kept; the sequence number is among them
		return fmt.Sprintf("%q...%q (%d bytes)", name[:maxPrinted-end], name[len(name)-end:], len(name))
	}
	if q := strconv.Quote(name); len(q) != len(name)+2 {
		return q
	}
	return name
}

// clean returns a message, which may contain any text of any length, as one line
// that can be shown on a terminal.
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

// cleanLines is like clean, but keeps the lines of the message.
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
