package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

// With -against, an older revision of this repository takes part. Its child
// processes run the bench program of that revision, which is built from the
// revision's own sources. They use the older library through the API that it
// had then. Only the protocol between bench and its child processes has to be
// the same in both revisions: see package work.

// revision is an older revision of this repository, whose bench program has
// been built.
type revision struct {
	label   string // the name that the caller of bench gave, with the commit
	program string // the path of the bench program that was built from the revision
}

// build builds the bench program of a revision of the repository that contains
// the working directory. All files that it makes are in dir, even if it returns
// an error. The text of an error says what the user of bench can do. When ctx
// ends, build stops.
func build(ctx context.Context, name, dir string) (revision, error) {
	fail := func(what string, err error) (revision, error) {
		if ctx.Err() != nil {
			return revision{}, ctx.Err()
		}
		return revision{}, fmt.Errorf("bench: -against %s: %s: %w", name, what, err)
	}
	root, err := runIn(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return fail("this takes git and a clone of the repository", err)
	}
	commit, err := runIn(ctx, root, "git", "rev-parse", "--verify", "--end-of-options", name+"^{commit}")
	if err != nil {
		return fail("git does not have this revision: fetch it, or name another one", err)
	}
	archive, sources := filepath.Join(dir, "older.tar"), filepath.Join(dir, "older")
	if err := os.Mkdir(sources, 0o755); err != nil {
		return fail("there is no directory for its sources", err)
	}
	if _, err := runIn(ctx, root, "git", "archive", "--format=tar", "--output="+archive, commit); err != nil {
		return fail("git does not write its sources", err)
	}
	if _, err := runIn(ctx, sources, "tar", "-xf", archive); err != nil {
		return fail("tar does not unpack its sources", err)
	}
	module := filepath.Join(sources, "bench")
	if _, err := os.Stat(filepath.Join(module, "go.mod")); err != nil {
		return fail("this revision has no bench module: name a later one", err)
	}
	r := revision{label: label(name, commit), program: filepath.Join(dir, "older-bench")}
	log.Printf("building %s", r.label)
	if _, err := runIn(ctx, module, "go", "build", "-buildvcs=false", "-o", r.program, "."); err != nil {
		return fail("its bench does not build: mend what go reports, or name another revision", err)
	}
	return r, nil
}

// label returns the first digits of the commit. If name is not an abbreviation
// of the commit's hash, but for example a tag, label puts the name before these
// digits.
func label(name, commit string) string {
	short := commit[:min(10, len(commit))]
	if strings.HasPrefix(commit, name) {
		return short
	}
	return name + " (" + short + ")"
}

// runIn runs one command in dir and returns its output. An error contains what the
// command wrote to its standard error. When ctx ends, the command is interrupted. The
// go command keeps its temporary files in dir, because after some interrupts it does
// not remove them.
func runIn(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &stderr
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOTMPDIR="+dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = graceTime
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// olderName returns the name of a competitor's counterpart from an older
// revision.
func olderName(name string) string { return name + "@older" }

// withOlder adds the older revision's counterpart after each competitor that is this
// library.
func withOlder(list []competitor, older revision) (all []competitor) {
	for _, c := range list {
		all = append(all, c)
		if !c.isOurs() {
			continue
		}
		counterpart := c
		counterpart.name, counterpart.label, counterpart.kind = olderName(c.name), c.label+" of "+older.label, variant
		counterpart.command = func(string) (*exec.Cmd, error) {
			return exec.Command(older.program, "-child", c.name), nil
		}
		all = append(all, counterpart)
	}
	return all
}

// minSpeed is a speed in relation to the older revision. If the speed of this
// library in a workload is below minSpeed, the library counts as slower there.
const minSpeed = 0.95

// comparison compares this library with its older revision in one workload.
type comparison struct {
	workload, label string
	current, older  string  // the medians of this library and of its older revision, each with its unit
	speed           float64 // the speed of this library divided by that of its older revision: the median over the rounds
	interval        stats.Interval
	rounds          int // the number of rounds in which both were measured
}

// slower reports whether the interval is known and lies entirely below
// minSpeed.
func (c comparison) slower() bool { return c.interval.Known && c.interval.High < minSpeed }

// asFast reports whether the interval is known and lies entirely at minSpeed or
// above. If neither slower nor asFast returns true, there are too few rounds to
// decide.
func (c comparison) asFast() bool { return c.interval.Known && c.interval.Low >= minSpeed }

// between returns the interval as text, or "-" if the interval is not known.
func (c comparison) between() string {
	if !c.interval.Known {
		return "-"
	}
	return fmt.Sprintf("%s to %s", ratio(c.interval.Low), ratio(c.interval.High))
}

// ratio returns a number with three digits after the point, one digit more than
// minSpeed has.
func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func (r *report) comparisons() (all []comparison) {
	for _, w := range r.workloads {
		for _, c := range r.competitors {
			older := olderName(c.name)
			if _, measured := r.Samples[w.name][older]; !measured {
				continue
			}
			ratios := r.ratios(w, c.name, older)
			all = append(all, comparison{
				workload: w.name, label: c.label,
				current:  median(r.spreadOf(w.name, c.name, w.figure)) + w.suffix(),
				older:    median(r.spreadOf(w.name, older, w.figure)) + w.suffix(),
				speed:    stats.Median(ratios),
				interval: stats.MedianInterval(ratios),
				rounds:   len(ratios),
			})
		}
	}
	return all
}

// against returns the part of the text that compares this library with its
// older revision.
func (r *report) against() string {
	var rows [][]string
	var slower, asFast int
	for _, c := range r.comparisons() {
		if c.slower() {
			slower++
		}
		if c.asFast() {
			asFast++
		}
		rows = append(rows, []string{c.workload, c.label, c.current, c.older, ratio(c.speed), c.between(), fmt.Sprint(c.rounds)})
	}
	header := []string{"workload", "lock", "current", r.Against, "speed, " + r.Against + " = 1", "95% interval", "rounds"}
	count := fmt.Sprintf("Of %d comparisons, the whole interval is below %[2]v in %[3]d, and at %[2]v or above in %[4]d. "+
		"The other %[5]d are open: they need more rounds, or a machine with less other work.",
		len(rows), minSpeed, slower, asFast, len(rows)-slower-asFast)
	return fmt.Sprintf("against %s, on %s\n\n%s\n%s\n", r.Against, r.setup.phrase, table(header, rows), wrap(count))
}

// slowerThanOlder returns an error that names two kinds of workloads: those in
// which this library is slower than its older revision, and those with too few
// rounds for an interval. If there are none of either kind, it returns nil.
func (r *report) slowerThanOlder() error {
	var slower, open []string
	for _, c := range r.comparisons() {
		switch {
		case c.slower():
			slower = append(slower, fmt.Sprintf("%s, %s: %s (%s)", c.workload, c.label, ratio(c.speed), c.between()))
		case !c.interval.Known:
			open = append(open, fmt.Sprintf("%s, %s: %d", c.workload, c.label, c.rounds))
		}
	}
	var errs []error
	if len(slower) > 0 {
		errs = append(errs, fmt.Errorf("bench: on %s slower than %s, with the whole 95%% interval below %v: %s", r.setup.phrase, r.Against, minSpeed, strings.Join(slower, "; ")))
	}
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("bench: on %s not compared with %s, because a 95%% interval takes %d rounds: %s", r.setup.phrase, r.Against, stats.MinForInterval, strings.Join(open, "; ")))
	}
	return errors.Join(errs...)
}
