package zkdriver

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPrinted is longer than any name that this driver makes.
const maxPrinted = 1024

// Printable quotes what would not print as it is, and cuts what is too long: names of nodes can
// have been made by anybody who may write to the store, and certificates by anybody at all.
func Printable(s string) string {
	if len(s) > maxPrinted {
		const end = 32 // where the sequence is
		return fmt.Sprintf("%q...%q (%d bytes)", s[:maxPrinted-end], s[len(s)-end:], len(s))
	}
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// printableError is an error whose text may hold what others have made up.
type printableError struct{ error }

// Error leaves what prints as it is.
func (e printableError) Error() string {
	text := e.error.Error()
	var b strings.Builder
	for i, r := range text {
		if b.Len() > 4*maxPrinted {
			return b.String() + "... (" + strconv.Itoa(len(text)) + " bytes)"
		}
		if strconv.IsPrint(r) {
			b.WriteString(text[i : i+len(string(r))])
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func (e printableError) Unwrap() error { return e.error }
