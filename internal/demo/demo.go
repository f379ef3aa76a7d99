// Package demo implements "dlock demo", the classic test of a read-write lock.
// Workers, each with a session of its own, contend for one lock. Writers increment
// a counter that only the lock protects. The program prints each event as it
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

const columns = 80 // width of the output, in characters

var errInterrupted = errors.New("interrupted before it began")

// Main runs the demo with these arguments and returns the exit status: 0 if all
// rules were kept, 1 if a rule was violated or the store could not be used, 2
// if the arguments are invalid. When ctx ends, the workers release their locks,
// and the verdict covers the run up to then.
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

// run is Main with a replaceable lock, for tests. Child processes ignore open.
func run(ctx context.Context, s *settings, open opener, stdout, stderr io.Writer) int {
	fail := func(status int, err error) int {
		// The error may repeat the data source name, which has a password if it
		// comes from the environment.
		text := secret.Hide(err.Error(), slices.Concat(s.args, []string{s.DSN}))
		fmt.Fprintf(stderr, "dlock demo: %s\n", clean(text))
		return status
	}
	probe, err := open(s.Host, nil) // no I/O; checks the data source name
	if err != nil {
		return fail(statusUsage, err)
	}
	_ = probe.Close()
	if s.SVG != "" {
		if err := checkPicture(s.SVG); err != nil {
			return fail(statusUsage, fmt.Errorf("-svg: %w", err))
		}
	}
	if s.Fault != "" {
		return runFault(ctx, s, stdout, fail)
	}
	dir, err := os.MkdirTemp("", "dlock-demo-")
	if err != nil {
		return fail(statusBad, err)
	}
	// Remove the directory as soon as all processes have opened its files,
	// so that even a kill leaves nothing behind. Some systems cannot remove
	// open files, so it is removed at the end, too.
	removeDir := func() { _ = os.RemoveAll(dir) }
	defer removeDir()
	s.CounterFile = filepath.Join(dir, "counter")
	count, err := openCounter(s.CounterFile)
	if err != nil {
		return fail(statusBad, err)
	}
	defer count.close()

	writeIntroduction(stdout, s)
	log := newJournal(stdout)
	g := &group{log: log, opened: removeDir}
	if s.Processes > 1 {
		err = g.run(ctx, s)
	} else {
		removeDir()
		err = runWorkers(ctx, s, open, count, log)
	}
	if err != nil {
		return fail(statusBad, err)
	}
	drawTimeline(stdout, log.attempts, columns)
	v := judge(log.attempts, count)
	v.interrupted = ctx.Err() != nil
	if s.Processes > 1 {
		g.report(v)
	}
	return s.finish(v, log, stdout, fail)
}

// finish writes the verdict and the picture, and returns the exit status.
func (s *settings) finish(v *verdict, log *journal, stdout io.Writer, fail func(int, error) int) int {
	v.write(stdout)
	if s.SVG != "" {
		if err := writePicture(s.SVG, drawPicture(s, log.attempts)); err != nil {
			return fail(statusBad, fmt.Errorf("-svg: %w", err))
		}
		fmt.Fprintf(stdout, "Picture: %s\n", clean(s.SVG))
	}
	return v.status()
}

func runFault(ctx context.Context, s *settings, stdout io.Writer, fail func(int, error) int) int {
	introduceScene(stdout, s)
	connecting(stdout, s)
	log := newJournal(stdout)
	sc, err := runScene(ctx, s, log)
	if err != nil {
		return fail(statusBad, err)
	}
	drawTimeline(stdout, log.attempts, columns)
	v := judgeLock(log.attempts)
	v.interrupted = ctx.Err() != nil
	sc.judge(v)
	return s.finish(v, log, stdout, fail)
}

func writeIntroduction(w io.Writer, s *settings) {
	fmt.Fprintf(w, `Processes: %d. Workers: %d, each with a session of its own. Lock: %s.
R reads and may share the lock with readers, W writes and must be alone; first
come, first served. Writers increment a counter that only the lock protects.
`, s.Processes, s.Workers, clean(s.Lock))
	if s.Processes > 1 {
		fmt.Fprintf(w, "At the end process %d is killed while it holds the lock, and the others take it.\n", s.victim())
	}
	fmt.Fprintf(w, "Store: %s. To repeat the choices of this run: -seed %d\n", s.Driver, s.Seed)
	connecting(w, s)
}

func connecting(w io.Writer, s *settings) {
	if s.Driver != inMemory {
		fmt.Fprintf(w, "Connecting, for %v at most ...\n", s.ConnectTimeout)
	}
	fmt.Fprintln(w)
}

// list formats the first few texts, one per line, and says how many it leaves
// out.
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
