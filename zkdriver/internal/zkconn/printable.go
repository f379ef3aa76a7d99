package zkconn

import (
	"fmt"
	"strconv"
	"strings"
)

// maxPrinted is longer than any name that the driver makes.
const maxPrinted = 1024

// Printable returns s for use in an error text: shortened if it is too long,
// and quoted if it has characters that do not print as they are. Any client
// that may write to the store can choose the names of its nodes.
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

// printableError is an error that may include text from outside, such as a name
// in a server's certificate.
type printableError struct{ error }

// Error escapes characters that do not print as they are, and shortens a long
// text.
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
