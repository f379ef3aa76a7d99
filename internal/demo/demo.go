// Package demo implements "dlock demo", the classic test of a read-write lock.
// Workers, each with a session of its own, contend for one lock. Writers increment
// a counter that only the lock protects. The program prints each event when it
// happens, and at the end a time line and a verdict.
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/internal/secret"
)

// Exit statuses.
const (
	statusOK    = 0
	statusBad   = 1 // a rule was violated, or the run could not check the rules
	statusUsage = 2
)

// columns is the width of the output.
const columns = 80

var errInterrupted = errors.New("interrupted before it began")

// Main runs the demo with these arguments and returns the exit status: 0 if all
// rules were kept, 1 if a rule was violated or the store could not be used, 2 if
// the arguments are not valid. When ctx ends, the workers release their locks,
// and the verdict is about the run up to then.
//
// With several processes, Main starts the program of this process again, with the
// arguments "demo" and [childArgument].
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if slices.Equal(args, []string{childArgument}) {
		return runChild(ctx, os.Stdin, os.Stdout)
	}
	s, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		writeHelp(stdout)
		return statusOK
	case err != nil:
		fmt.Fprintf(stderr, "dlock demo: %s\nRun 'dlock demo -h' for help\n", clean(secret.Hide(err.Error(), args)))
		return statusUsage
	}
	return run(ctx, s, s.open, stdout, stderr)
}

// run runs the demo with the locks that open returns. Child processes use the
// locks of the settings instead.
func run(ctx context.Context, s *settings, open opener, stdout, stderr io.Writer) int {
	fail := func(status int, err error) int {
		// The data source name may come from the environment.
		text := secret.Hide(err.Error(), slices.Concat(s.args, []string{s.dsn}))
		fmt.Fprintf(stderr, "dlock demo: %s\n", clean(text))
		return status
	}
	probe, err := open(s.host, nil) // checks the data source name, without I/O
	if err != nil {
		return fail(statusUsage, err)
	}
	_ = probe.Close()
	private := s.counterFile == ""
	forget := func() {}
	if private {
		dir, err := os.MkdirTemp("", "dlock-demo-")
		if err != nil {
			return fail(statusBad, err)
		}
		forget = func() { _ = os.RemoveAll(dir) } // fails where an open file cannot be removed, until the last call
		defer forget()
		s.counterFile = filepath.Join(dir, "counter")
	}
	count, err := openCounter(s.counterFile)
	if err != nil {
		return fail(statusBad, err)
	}
	defer count.close()
	if s.processes == 1 {
		forget()
	}

	writeIntroduction(stdout, s)
	log := newJournal(stdout)
	g := newGroup(s, log, forget)
	if s.processes > 1 {
		err = g.run(ctx)
	} else {
		g.closing, err = runWorkers(ctx, s, open, count, log)
	}
	if err != nil {
		return fail(statusBad, err)
	}
	drawTimeline(stdout, log.attempts, columns)
	v := judge(log.attempts, count, !private)
	v.interrupted = ctx.Err() != nil
	v.errs = append(v.errs, g.closing...)
	if s.processes > 1 {
		g.report(v)
	}
	v.write(stdout, s)
	return v.status()
}

func writeIntroduction(w io.Writer, s *settings) {
	in := ""
	if s.processes > 1 {
		in = fmt.Sprintf(" in %d processes", s.processes)
	}
	times := map[int]string{1: "once", 2: "twice"}[s.rounds]
	if times == "" {
		times = fmt.Sprintf("%d times", s.rounds)
	}
	fmt.Fprintf(w, `%d workers%s, each with a session of its own, take the lock %s %s.
R reads and may share it with readers, W writes and must be alone; first come,
first served. Writers increment a counter that only the lock protects.
`, s.workers, in, clean(s.lock), times)
	if s.processes > 1 {
		fmt.Fprintf(w, `The counter is in a file. Two processes that held the lock at the same time would
overwrite each other's increments, and the sum at the end would be too small.
Then process %d is killed while a worker of it holds the lock. The other processes
ask for the lock once more, and wait until the store ends the dead process's sessions.
`, s.victim())
	}
	fmt.Fprintf(w, "Store: %s. To repeat the choices of this run: -seed %d\n", s.driver, s.seed)
	if s.driver != inMemory {
		fmt.Fprintf(w, "Connecting, for %v at most ...\n", s.connectTimeout)
	}
	fmt.Fprintln(w)
}

// list returns the first few texts, each in a line with the prefix, and says how
// many more there are.
func list(prefix string, texts []string) string {
	const most = 3
	var b strings.Builder
	for _, text := range texts[:min(most, len(texts))] {
		fmt.Fprintf(&b, "%s%s\n", prefix, clean(text))
	}
	if more := len(texts) - most; more > 0 {
		fmt.Fprintf(&b, "%sand so on, %d more\n", prefix, more)
	}
	return b.String()
}
