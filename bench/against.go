package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// revision is an older revision of this repository to compare with. Its own
// bench program runs in the child processes, so the protocol of package work
// must stay compatible.
type revision struct {
	label   string // commit, abbreviated
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
	r := revision{label: commit[:10], program: filepath.Join(dir, "older-bench")}
	log.Printf("building %s", r.label)
	if _, err := runIn(ctx, module, "go", "build", "-buildvcs=false", "-o", r.program, "."); err != nil {
		return fail("its bench does not build: mend what go reports, or name another revision", err)
	}
	return r, nil
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

// comparison is that of the current with the older revision, in one workload.
type comparison struct {
	workload, label string
	current, older  string    // medians, with their unit
	speed           float64   // median of current divided by older speed
	interval        []float64 // of that median, with 95% confidence; nil if there are too few rounds
	rounds          int       // number of rounds in which both were measured
}

// slower reports whether the whole confidence interval is below minSpeed.
func (c comparison) slower() bool { return c.interval != nil && c.interval[1] < minSpeed }

func (c comparison) between() string {
	if c.interval == nil {
		return "-"
	}
	return fmt.Sprintf("%s to %s", ratio(c.interval[0]), ratio(c.interval[1]))
}

func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func (r *run) comparisons() (all []comparison) {
	for _, w := range r.workloads {
		shown := func(lock string) string {
			values := filter(r.samples.values(w.name, lock, w.figure), func(v float64) bool { return !math.IsNaN(v) })
			return number(median(values)) + w.suffix()
		}
		for _, c := range r.competitors {
			older := olderName(c.name)
			if r.samples[w.name][older] == nil {
				continue
			}
			ratios := r.samples.ratios(w, c.name, older)
			all = append(all, comparison{
				workload: w.name, label: c.label, current: shown(c.name), older: shown(older),
				speed: median(ratios), interval: medianInterval(ratios), rounds: len(ratios),
			})
		}
	}
	return all
}

// minForInterval is the smallest number of values from which medianInterval can
// compute an interval.
const minForInterval = 6

// medianInterval returns the bounds of an interval in which the median is with
// at least 95% confidence, whatever the distribution, or nil if there are too
// few values. As in the sign test, it reaches from the k-th smallest to the k-th
// largest value, where k is as large as the confidence allows.
func medianInterval(values []float64) []float64 {
	// Each value is below the median with probability 1/2. The probability
	// that fewer than k of n values are below it is therefore that of fewer
	// than k heads in n coin tosses.
	n, k := len(values), 0
	term := math.Pow(0.5, float64(n)) // P(exactly k heads)
	for outside := 2 * term; k < n && outside <= 0.05; outside += 2 * term {
		k++
		term *= float64(n-k+1) / float64(k)
	}
	if k == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	return []float64{sorted[k-1], sorted[n-k]}
}

func (r *run) against() string {
	rows := mapped(r.comparisons(), func(c comparison) []string {
		return []string{c.workload, c.label, c.current, c.older, ratio(c.speed), c.between(), fmt.Sprint(c.rounds)}
	})
	header := []string{"workload", "lock", "current", r.older, "speed, " + r.older + " = 1", "95% interval", "rounds"}
	return fmt.Sprintf("Against %s, on %s\n\n%s\n", r.older, r.setup.phrase, table(header, rows))
}

// slowerThanOlder returns an error that names the workloads that are slower
// than in the older revision, and those with too few rounds to tell. Otherwise
// it returns nil.
func (r *run) slowerThanOlder() error {
	var slower, open []string
	for _, c := range r.comparisons() {
		switch {
		case c.slower():
			slower = append(slower, fmt.Sprintf("%s, %s: %s (%s)", c.workload, c.label, ratio(c.speed), c.between()))
		case c.interval == nil:
			open = append(open, fmt.Sprintf("%s, %s: %d", c.workload, c.label, c.rounds))
		}
	}
	var errs []error
	if len(slower) > 0 {
		errs = append(errs, fmt.Errorf("bench: on %s slower than %s, with the whole 95%% interval below %v: %s", r.setup.phrase, r.older, minSpeed, strings.Join(slower, "; ")))
	}
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("bench: on %s not compared with %s, because a 95%% interval takes %d rounds: %s", r.setup.phrase, r.older, minForInterval, strings.Join(open, "; ")))
	}
	return errors.Join(errs...)
}
