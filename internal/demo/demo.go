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

	"github.com/dlock-go/dlock/internal/secret"
)

// Exit statuses.
const (
	statusOK    = 0
	statusBad   = 1 // a rule was violated, or the run could not check the rules
	statusUsage = 2
)

// Main runs the demo with these arguments and returns the exit status: 0 if all
// rules were kept, 1 if a rule was violated or the store could not be used, 2 if
// the arguments are not valid. When ctx ends, the workers release their locks,
// and the verdict is about the run up to then.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		writeHelp(stdout)
		return statusOK
	case err != nil:
		return printError(stderr, statusUsage, fmt.Errorf("%s\nRun 'dlock demo -h' for help", secret.Hide(err.Error(), args)))
	}
	s.args, s.columns = args, terminalWidth(stdout)
	return run(ctx, s, s.open, stdout, stderr)
}

// run runs the demo with these settings and with the locks that open returns.
func run(ctx context.Context, s *settings, open opener, stdout, stderr io.Writer) int {
	count, err := openCounter(s.counterFile)
	if err != nil {
		return printError(stderr, statusBad, s.hide(err))
	}
	defer count.close()
	log := newJournal(stdout)
	workers, err := newWorkers(s, open, count, log)
	if err != nil {
		return printError(stderr, statusUsage, s.hide(err))
	}
	writeIntroduction(stdout, s)
	if err := connectAll(ctx, workers, s.connectTimeout); err != nil {
		workers.close()
		return printError(stderr, statusBad, s.hide(err))
	}
	log.begin()
	attempts := workers.work(ctx)
	errs := workers.close()

	drawTimeline(stdout, attempts, s.columns)
	v := judge(attempts, readTotal(count, attempts))
	v.interrupted = ctx.Err() != nil
	v.addErrors(errs)
	v.write(stdout, s)
	return v.status()
}

// hide returns the error without the passwords that the command line holds.
func (s *settings) hide(err error) error {
	return errors.New(secret.Hide(err.Error(), s.args))
}

// printError prints an error and returns the status.
func printError(w io.Writer, status int, err error) int {
	fmt.Fprintf(w, "dlock demo: %s\n", cleanLines(err.Error()))
	return status
}

func writeIntroduction(w io.Writer, s *settings) {
	fmt.Fprintf(w, "%d workers, each with a session of its own, take the lock %s %s.\n", s.workers, printable(s.lock), times(s.rounds))
	fmt.Fprint(w, "R reads and may share it with readers, W writes and must be alone; first come,\n")
	fmt.Fprint(w, "first served. Writers increment a counter that only the lock protects.\n")
	fmt.Fprintf(w, "Store: %s. To repeat the choices of this run: -seed %d\n", s.driver, s.seed)
	if s.driver != inMemory {
		fmt.Fprintf(w, "Connecting, for %v at most ...\n", s.connectTimeout)
	}
	fmt.Fprintln(w)
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
