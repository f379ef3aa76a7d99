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
	"slices"

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
//
// With several processes, Main starts the program of this process again, with the
// arguments "demo" and [childArgument]. Such a child talks to its parent over its
// standard input and output.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if slices.Equal(args, []string{childArgument}) {
		return runChild(ctx, os.Stdin, os.Stdout, stderr)
	}
	s, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		writeHelp(stdout)
		return statusOK
	case err != nil:
		return printError(stderr, statusUsage, fmt.Errorf("%s\nRun 'dlock demo -h' for help", secret.Hide(err.Error(), args)))
	}
	s.args, s.columns = args, terminalWidth(stdout)
	if s.processes > 1 {
		return runProcesses(ctx, s, stdout, stderr)
	}
	return run(ctx, s, s.open, stdout, stderr)
}

// run runs the demo in this process, with these settings and with the locks that
// open returns.
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
	workers.work(ctx)
	errs := workers.close()

	v := conclude(ctx, s, stdout, count, s.counterFile != "", log.attempts, errs)
	v.write(stdout, s)
	return v.status()
}

// conclude draws the time line of the attempts and returns the verdict. The
// parameter shared says whether other runs may use the counter, and errs are the
// errors of clients that could not be closed.
func conclude(ctx context.Context, s *settings, stdout io.Writer, count counter, shared bool, attempts []*attempt, errs []error) *verdict {
	drawTimeline(stdout, attempts, s.columns)
	total, err := readTotal(count, shared, attempts)
	if err != nil {
		errs = append(errs, err)
	}
	v := judge(attempts, total)
	v.interrupted = ctx.Err() != nil
	v.addErrors(errs)
	return v
}

// hide returns the error without the passwords that the command line and the data
// source name hold. The data source name may come from the environment.
func (s *settings) hide(err error) error {
	return errors.New(secret.Hide(err.Error(), slices.Concat(s.args, []string{s.dsn})))
}

// printError prints an error and returns the status.
func printError(w io.Writer, status int, err error) int {
	fmt.Fprintf(w, "dlock demo: %s\n", cleanLines(err.Error()))
	return status
}

func writeIntroduction(w io.Writer, s *settings) {
	fmt.Fprintf(w, "%d workers%s, each with a session of its own, take the lock %s %s.\n", s.workers, s.inProcesses(), printable(s.lock), times(s.rounds))
	fmt.Fprint(w, "R reads and may share it with readers, W writes and must be alone; first come,\n")
	fmt.Fprint(w, "first served. Writers increment a counter that only the lock protects.\n")
	if s.processes > 1 {
		fmt.Fprint(w, "The counter is in a file. Two processes that held the lock at the same time would\n")
		fmt.Fprint(w, "overwrite each other's increments, and the sum at the end would be too small.\n")
		fmt.Fprintf(w, "Then process %d is killed while a worker of it holds the lock. The other processes\n", s.victim())
		fmt.Fprint(w, "ask for the lock once more, and wait until the store ends the dead process's sessions.\n")
	}
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
