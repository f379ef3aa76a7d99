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

// revision is an older revision of this repository to compare with. Its own
// bench program runs in the child processes, so the protocol of package work
// must stay compatible.
type revision struct {
	label   string // name and commit
	program string // path of its bench program
}

// build builds the bench program of an older revision. It writes only to dir.
// Its errors tell the user what to do.
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

func label(name, commit string) string {
	short := commit[:min(10, len(commit))]
	if strings.HasPrefix(commit, name) {
		return short
	}
	return name + " (" + short + ")"
}

// runIn runs a command in dir and returns its standard output. An error
// includes the standard error. Temporary files are kept in dir as well, because
// the go command may not remove them when interrupted.
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

func olderName(name string) string { return name + "@older" }

// withOlder returns list with the older revision added after each competitor
// that is a variant of this library.
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

// minSpeed is the speed, relative to the older revision, below which a workload
// counts as slower.
const minSpeed = 0.95

type comparison struct {
	workload, label string
	current, older  string  // medians, with their unit
	speed           float64 // median of current divided by older speed
	interval        stats.Interval
	rounds          int // number of rounds in which both were measured
}

// slower reports whether the whole confidence interval is below minSpeed.
func (c comparison) slower() bool { return c.interval.Known && c.interval.High < minSpeed }

func (c comparison) between() string {
	if !c.interval.Known {
		return "-"
	}
	return fmt.Sprintf("%s to %s", ratio(c.interval.Low), ratio(c.interval.High))
}

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

func (r *report) against() string {
	rows := mapped(r.comparisons(), func(c comparison) []string {
		return []string{c.workload, c.label, c.current, c.older, ratio(c.speed), c.between(), fmt.Sprint(c.rounds)}
	})
	header := []string{"workload", "lock", "current", r.Against, "speed, " + r.Against + " = 1", "95% interval", "rounds"}
	return fmt.Sprintf("against %s, on %s\n\n%s\n", r.Against, r.setup.phrase, table(header, rows))
}

// slowerThanOlder returns an error that names the workloads that are slower
// than in the older revision, and those with too few rounds to tell. Otherwise
// it returns nil.
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
