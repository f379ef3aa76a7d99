package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

const doctorHelp = `Usage: dlock doctor [flags]

Checks whether the store, the network and the settings suit locks: host names,
ports, certificates, the login, the user's rights, the session timeout, the
outage that locks survive, clocks, settings of the server, and sequences. Each
line is ok, or says what to do. The exit status is 0 if there is nothing to do,
1 if there is, and 2 if the command line is invalid.

It takes a lock in a queue of its own, which it removes. It touches no other
queue. If the database has no tables for locks yet, it makes them.

Flags:
`

// doctor runs "dlock doctor".
func doctor(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var s store
	flags := flag.NewFlagSet("doctor", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	s.flags(flags)
	asJSON := flags.Bool("json", false, "print each finding as a JSON object on a line of its own")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, doctorHelp)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = errors.New("it takes no arguments, only flags")
	}
	var client *dlock.Client
	if err == nil {
		err = s.resolve()
	}
	if err == nil {
		client, err = s.open()
	}
	if err != nil {
		fmt.Fprintf(stderr, "dlock doctor: %s\nTry: dlock help doctor\n", s.hide(err.Error(), args))
		return usageStatus
	}
	defer client.Close()
	status := 0
	err = client.Diagnose(ctx, func(f driver.Finding) {
		f.Text, f.Advice = s.hide(f.Text, args), s.hide(f.Advice, args)
		if f.Level == driver.Warning || f.Level == driver.Problem {
			status = failedStatus
		}
		if *asJSON {
			_ = json.NewEncoder(stdout).Encode(f) // stdout remembers its error
			return
		}
		fmt.Fprint(stdout, finding(f))
	})
	if err != nil {
		fmt.Fprintf(stderr, "%s\n", s.hide(err.Error(), args))
		return failedStatus
	}
	return status
}

// finding formats a finding, with its advice on separate lines.
func finding(f driver.Finding) string {
	var b strings.Builder
	first, rest, _ := strings.Cut(strings.TrimSpace(f.Text), "\n")
	fmt.Fprintf(&b, "%-8v %-16s %s\n", f.Level, f.Check, escape(first))
	indented(&b, rest, "         ")
	indented(&b, f.Advice, "         -> ")
	return b.String()
}

// indented writes a text with the prefix before its first line and spaces of
// the same width before the other lines.
func indented(b *strings.Builder, text, prefix string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(b, "%s%s\n", prefix, escape(strings.TrimRight(line, "\n")))
		prefix = strings.Repeat(" ", len(prefix))
	}
}

// escape quotes characters that a terminal might obey as a command, because the
// text may come from a server.
func escape(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}
