package zkconn

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPrinted is the length in bytes above which Printable shortens a text.
// Names that the driver creates are shorter.
const maxPrinted = 1024

// Printable returns s in a form that is safe in an error text, because other
// clients choose the names of their nodes. It shortens a long s, and quotes one
// with unprintable characters.
func Printable(s string) string {
	if len(s) > maxPrinted {
		const end = 32 // bytes kept at the end, which include a node's sequence
		return fmt.Sprintf("%q...%q (%d bytes)", s[:maxPrinted-end], s[len(s)-end:], len(s))
	}
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// printableError wraps an error whose text may come from another party, such as
// a name in a server's certificate.
type printableError struct{ error }

// Error escapes unprintable characters and shortens a long text.
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
