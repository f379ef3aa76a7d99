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

// An older revision of this repository takes part with its own bench program,
// built from its own sources: its child uses the older library through the API
// that the library had then. Only the protocol between bench and its children
// has to be the same in both revisions; package work says what that takes.

// revision is an older revision of this repository, built.
type revision struct {
	label   string // what the caller asked for, with the commit
	program string // path of that revision's bench
}

// build builds the bench program of a revision of the repository that the
// working directory belongs to. All files that it makes are in dir, also after
// an error. An error says what the caller can do. When ctx ends, build stops.
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
		return fail("no place for its sources", err)
	}
	if _, err := runIn(ctx, root, "git", "archive", "--format=tar", "--output="+archive, commit); err != nil {
		return fail("git does not write its sources", err)
	}
	if _, err := runIn(ctx, sources, "tar", "-xf", archive); err != nil {
		return fail("tar does not unpack its sources", err)
	}
	home := filepath.Join(sources, "bench")
	if _, err := os.Stat(filepath.Join(home, "go.mod")); err != nil {
		return fail("this revision has no bench module: name a later one", err)
	}
	r := revision{label: label(name, commit), program: filepath.Join(dir, "older-bench")}
	log.Printf("building %s", r.label)
	if _, err := runIn(ctx, home, "go", "build", "-buildvcs=false", "-o", r.program, "."); err != nil {
		return fail("its bench does not build: mend what go reports, or name another revision", err)
	}
	return r, nil
}

// label returns the name, with the start of the commit where the name is
// something else.
func label(name, commit string) string {
	short := commit[:min(10, len(commit))]
	if strings.HasPrefix(commit, name) {
		return short
	}
	return name + " (" + short + ")"
}

// runIn runs one command in dir and returns its output. An error holds what the
// command wrote to its standard error. When ctx ends, the command is interrupted.
// The go command keeps its temporary files in dir: some interrupts leave them.
func runIn(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out, trouble bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &trouble
	cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOTMPDIR="+dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = graceTime
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, args[0], err, bytes.TrimSpace(trouble.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// olderName is the name of a competitor's counterpart from an older revision.
func olderName(name string) string { return name + "@older" }

// withOlder adds the older revision's counterpart behind each competitor that
// is this library.
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

// tolerated is the speed, in relation to the older revision, below which a
// workload counts as slower.
const tolerated = 0.95

// comparison is this library beside its older revision in one workload.
type comparison struct {
	workload, label string
	now, then       string  // medians, with their unit
	speed           float64 // median of the ratios within a round; over 1 is faster
	interval        stats.Interval
	rounds          int // that both have
}

// slower reports whether the whole interval is below what is tolerated.
func (c comparison) slower() bool { return c.interval.Known && c.interval.High < tolerated }

// asFast reports whether the whole interval is within what is tolerated. If the
// workload is neither slower nor asFast, the rounds do not tell.
func (c comparison) asFast() bool { return c.interval.Known && c.interval.Low >= tolerated }

func (c comparison) between() string {
	if !c.interval.Known {
		return "-"
	}
	return fmt.Sprintf("%s to %s", ratio(c.interval.Low), ratio(c.interval.High))
}

// ratio writes three digits after the point: the limit has two.
func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// comparisons returns every pair of this library and its older revision that
// was to be measured, in the order of the page.
func (r *report) comparisons() (all []comparison) {
	for _, s := range sections {
		for _, w := range s.workloads {
			for _, c := range r.competitors {
				older := olderName(c.name)
				if _, measured := r.Samples[w][older]; !measured {
					continue
				}
				ratios := r.ratios(s, w, c.name, older)
				all = append(all, comparison{
					workload: w, label: c.label,
					now:      median(r.spreadOf(w, c.name, s.figure)) + s.suffix(),
					then:     median(r.spreadOf(w, older, s.figure)) + s.suffix(),
					speed:    stats.Median(ratios),
					interval: stats.MedianInterval(ratios),
					rounds:   len(ratios),
				})
			}
		}
	}
	return all
}

// against is the part of the text about the older revision.
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
		rows = append(rows, []string{c.workload, c.label, c.now, c.then, ratio(c.speed), c.between(), fmt.Sprint(c.rounds)})
	}
	header := []string{"workload", "lock", "today", r.Against, "speed, " + r.Against + " = 1", "95% interval", "rounds"}
	return fmt.Sprintf("against %s\n\n%s\nOf %d comparisons the whole interval is below %[4]v in %[5]d, and at %[4]v or above in %[6]d. The other %[7]d are open: that takes more rounds, or a machine with less other work.\n",
		r.Against, table(header, rows), len(rows), tolerated, slower, asFast, len(rows)-slower-asFast)
}

// setback returns an error that names the workloads in which this library is
// slower than its older revision, and those that say nothing because too few
// rounds were measured; nil if there are none of either.
func (r *report) setback() error {
	var slower, open []string
	for _, c := range r.comparisons() {
		what := fmt.Sprintf("%s, %s: %s (%s)", c.workload, c.label, ratio(c.speed), c.between())
		switch {
		case c.slower():
			slower = append(slower, what)
		case !c.interval.Known:
			open = append(open, fmt.Sprintf("%s, %s: %d", c.workload, c.label, c.rounds))
		}
	}
	var errs []error
	if len(slower) > 0 {
		errs = append(errs, fmt.Errorf("bench: slower than %s, with the whole 95%% interval below %v: %s", r.Against, tolerated, strings.Join(slower, "; ")))
	}
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("bench: not compared with %s, because a 95%% interval takes %d rounds: %s", r.Against, stats.LeastForInterval, strings.Join(open, "; ")))
	}
	return errors.Join(errs...)
}
