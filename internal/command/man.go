package command

import (
	"fmt"
	"io"
	"strings"

	"github.com/dlock-go/dlock"
)

func writeManual(w io.Writer) {
	all := readManuals()
	fmt.Fprint(w, `.TH DLOCK 1 "" dlock "User Commands"
.SH NAME
dlock \- distributed read-write locks
.SH SYNOPSIS
`)
	for i, m := range all {
		if i > 0 {
			fmt.Fprint(w, ".br\n")
		}
		fmt.Fprintf(w, ".B dlock %s\n", roff(m.synopsis))
	}
	fmt.Fprintf(w, `.SH DESCRIPTION
.B dlock
is the command line of the Go library
.IR dlock ,
with which the processes of a distributed system share read-write locks.
The drivers of this program are: %s.
.SH COMMANDS
`, roff(strings.Join(dlock.Drivers(), ", ")))
	for _, m := range all {
		fmt.Fprintf(w, ".SS %s\n%s.\n.PP\n.nf\n%s\n.fi\n", roff(m.name), roff(strings.ToUpper(m.summary[:1])+m.summary[1:]), roff(m.text))
		for _, o := range m.flags {
			fmt.Fprintf(w, ".TP\n.BI \\-%s \" %s\"\n%s\n", roff(o.name), roff(o.value), roff(o.usage))
		}
	}
	fmt.Fprintf(w, `.SH EXIT STATUS
0 after success, %d after a failure, and %d if the command line is not valid, unless a command says otherwise.
`, failedStatus, usageStatus)
}

// roff escapes text so that man(7) interprets none of its lines as a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\t", "    ").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
