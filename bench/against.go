package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// revision is an older commit to compare with. Its own bench runs in the
// children, so package work's protocol must stay compatible.
type revision struct {
	label   string // commit, abbreviated
	program string // path of its bench program
}

// buildScript builds the bench of revision $1 in the directory $2, and prints its
// commit.
const buildScript = `set -e
commit=$(git rev-parse --verify --end-of-options "$1^{commit}")
mkdir "$2/sources"
git -C "$(git rev-parse --show-toplevel)" archive "$commit" | tar -x -C "$2/sources"
cd "$2/sources/bench"
go build -buildvcs=false -o "$2/older-bench" .
echo "$commit"`

// build builds the bench program of an older revision. It writes only to dir,
// including the temporary files that an interrupted go command leaves behind.
func build(ctx context.Context, name, dir string) (r revision, err error) {
	log.Printf("building %s", name)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-c", buildScript, "sh", name, dir)
	cmd.Env, cmd.Stderr = append(cmd.Environ(), "GOWORK=off", "GOTMPDIR="+dir), &stderr
	commit, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("bench: -against %s: it does not build: %w\n%s", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return revision{label: string(commit[:10]), program: filepath.Join(dir, "older-bench")}, nil
}

func olderName(name string) string { return name + "@older" }

func withOlder(list []competitor, older revision) (all []competitor) {
	for _, c := range list {
		all = append(all, c)
		if !c.isOurs() {
			continue
		}
		counterpart := c
		counterpart.name, counterpart.label, counterpart.kind = olderName(c.name), c.label+" of "+older.label, variant
		counterpart.command = func() (*exec.Cmd, error) {
			return exec.Command(older.program, "-child", c.name), nil
		}
		all = append(all, counterpart)
	}
	return all
}

// minSpeed is the relative speed below which a workload counts as slower.
const minSpeed = 0.95

// against compares the speeds with the older revision's. The error names
// workloads that are surely slower, or that had too few rounds.
func (r *run) against() (text string, err error) {
	var rows [][]string
	var slower, open []string
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
			speed, between, interval := fmt.Sprintf("%.3f", median(ratios)), "-", medianInterval(ratios)
			if interval != nil {
				between = fmt.Sprintf("%.3f to %.3f", interval[0], interval[1])
			}
			rows = append(rows, []string{w.name, c.label, shown(c.name), shown(older), speed, between, fmt.Sprint(len(ratios))})
			if interval == nil {
				open = append(open, fmt.Sprintf("%s, %s: %d", w.name, c.label, len(ratios)))
			} else if interval[1] < minSpeed {
				slower = append(slower, fmt.Sprintf("%s, %s: %s (%s)", w.name, c.label, speed, between))
			}
		}
	}
	var errs []error
	if len(slower) > 0 {
		errs = append(errs, fmt.Errorf("bench: on %s slower than %s, with the whole 95%% interval below %v: %s", r.setup.phrase, r.older, minSpeed, strings.Join(slower, "; ")))
	}
	if len(open) > 0 {
		errs = append(errs, fmt.Errorf("bench: on %s not compared with %s, because a 95%% interval takes %d rounds: %s", r.setup.phrase, r.older, minForInterval, strings.Join(open, "; ")))
	}
	header := []string{"workload", "lock", "current", r.older, "speed, " + r.older + " = 1", "95% interval", "rounds"}
	return fmt.Sprintf("Against %s, on %s\n\n%s\n", r.older, r.setup.phrase, table(header, rows)), errors.Join(errs...)
}

// medianInterval returns nil for fewer values than this.
const minForInterval = 6

// medianInterval returns a confidence interval of at least 95% for the median
// by the sign test, or nil if there are too few values.
func medianInterval(values []float64) []float64 {
	// Fewer than k of n values are below the median with the probability of
	// fewer than k heads in n coin tosses.
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
