package demo

import (
	"io"
	"os"
	"strconv"
)

// terminalWidth returns how many columns the output has: what COLUMNS says, or the terminal, or 100.
func terminalWidth(out io.Writer) int {
	const unknown, widest = 100, 400
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return min(n, widest)
	}
	if f, ok := out.(*os.File); ok {
		if n := columnsOf(f); n > 0 {
			return min(n, widest)
		}
	}
	return unknown
}
