package demo

import (
	"io"
	"os"
	"strconv"
)

// terminalWidth returns the number of columns of the output: the value of
// COLUMNS, or else the width of the terminal, or else 100.
func terminalWidth(out io.Writer) int {
	const unknown, widest = 100, 400
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return min(n, widest)
	}
	if f, ok := out.(interface{ Fd() uintptr }); ok {
		if n := columnsOf(f.Fd()); n > 0 {
			return min(n, widest)
		}
	}
	return unknown
}
