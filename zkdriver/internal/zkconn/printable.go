package zkconn

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPrinted exceeds the length of any name that the driver creates.
const maxPrinted = 1024

// Printable returns s in a form that is safe in an error text: shortened, and
// quoted if it has unprintable characters. Other clients can choose the names
// of nodes.
func Printable(s string) string {
	if len(s) > maxPrinted {
		const end = 32 // bytes kept at the end, which include the sequence
		return fmt.Sprintf("%q...%q (%d bytes)", s[:maxPrinted-end], s[len(s)-end:], len(s))
	}
	if q := strconv.Quote(s); len(q) != len(s)+2 {
		return q
	}
	return s
}

// printableError wraps an error whose text may contain foreign text, such as a
// name from a server's certificate.
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
