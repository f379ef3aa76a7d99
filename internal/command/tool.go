package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// tool is one run of a command that inspects a store.
type tool struct {
	name    string // such as "queue"
	help    string
	needs   string // names the required arguments in an error message
	flags   *flag.FlagSet
	store   store
	json    bool
	timeout time.Duration
	server  atomic.Value // a string: the server of the latest session

	args           []string // as typed
	stdout, stderr io.Writer
}

func newTool(name, help, needs string, args []string, stdout, stderr io.Writer) *tool {
	t := &tool{name: name, help: help, needs: needs, timeout: 10 * time.Second, args: args, stdout: stdout, stderr: stderr}
	t.flags = flag.NewFlagSet("dlock "+name, flag.ContinueOnError)
	t.flags.SetOutput(io.Discard)
	if name != "doctor" { // doctor limits each of its steps instead
		t.flags.DurationVar(&t.timeout, "timeout", t.timeout, "how long to wait for the store")
	}
	t.store.flags(t.flags)
	return t
}

// open parses the command line and opens a client. If client is nil, the
// command must exit with the status.
func (t *tool) open(least, most int, opts ...dlock.Option) (arguments []string, client *dlock.Client, status int) {
	arguments, err := t.parse()
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(t.stdout, t.help)
		t.flags.SetOutput(t.stdout)
		t.flags.PrintDefaults()
		return nil, nil, 0
	}
	if err == nil {
		err = t.check(arguments, least, most)
	}
	if err == nil {
		err = t.store.resolve()
	}
	if err == nil {
		client, err = t.store.open(append(opts, dlock.WithTrace(&recipes.Trace{Connected: func(_ context.Context, info recipes.ConnectedInfo) {
			t.server.Store(info.Session.Server)
		}}))...)
	}
	if err != nil {
		t.say(err.Error() + "\nTry: dlock help " + t.name)
		return nil, nil, usageStatus
	}
	return arguments, client, 0
}

func (t *tool) check(arguments []string, least, most int) error {
	switch n := len(arguments); {
	case n < least || n > most:
		return fmt.Errorf("give %s", t.needs)
	case t.timeout <= 0:
		return fmt.Errorf("-timeout %v: must be positive", t.timeout)
	case n > 0:
		return driver.CheckQueue(arguments[0])
	}
	return nil
}

func (t *tool) parse() (arguments []string, err error) {
	for left := t.args; ; {
		if err := t.flags.Parse(left); err != nil {
			return nil, err
		}
		rest := t.flags.Args()
		read := left[:len(left)-len(rest)]
		if len(rest) == 0 || len(read) > 0 && read[len(read)-1] == "--" {
			return append(arguments, rest...), nil
		}
		arguments, left = append(arguments, rest[0]), rest[1:]
	}
}

func (t *tool) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, t.timeout)
}

func (t *tool) failed(err error) int {
	t.say(t.explain(err))
	return failedStatus
}

// explain adds the store's name if the store could not be reached in time.
func (t *tool) explain(err error) string {
	text := strings.TrimPrefix(err.Error(), "dlock: ")
	if errors.Is(err, context.DeadlineExceeded) {
		text = fmt.Sprintf("no answer within %v: %s", t.timeout, text)
	} else if !errors.Is(err, dlock.ErrUnavailable) {
		return text
	}
	return fmt.Sprintf("%s (the store is %s)", text, t.storeName())
}

func (t *tool) storeName() string {
	server, _ := t.server.Load().(string)
	return t.store.name(server)
}

// say prints a message to standard error, without passwords.
func (t *tool) say(text string) {
	fmt.Fprintf(t.stderr, "dlock %s: %s\n", t.name, t.clean(text))
}

func (t *tool) clean(text string) string { return printable(t.store.hide(text, t.args)) }

// printable replaces control characters, which a terminal would obey, because a
// text may come from a server or repeat names chosen by other programs.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r != '\n' && !unicode.IsPrint(r):
			return utf8.RuneError
		}
		return r
	}, text)
}

// cell formats untrusted text as a table cell. It quotes text that a terminal
// would not show unchanged, or that would look like several columns.
func cell(text string) string {
	quoted := strconv.Quote(text)
	switch {
	case text == "":
		return "-"
	case len(quoted) != len(text)+2, strings.Contains(text, " "), text == "-":
		return quoted
	}
	return text
}

// short is like cell, but truncates the text to the given length.
func short(text string, most int) string {
	text = cell(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// period formats a duration with at most two units, such as 5m03s.
func period(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
