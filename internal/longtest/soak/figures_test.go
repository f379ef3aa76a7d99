//go:build linux || darwin

package soak

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

type figures struct {
	began              time.Time
	seed               uint64
	rounds             int
	violations         int
	diverged           int // rounds ended early by diverged servers
	processes          int
	counts             map[string]int // sums of the counts of surviving workers
	injected           map[string]int
	checked, unchecked tally         // of all counters
	recovery           time.Duration // longest time without progress after a heal
	recoveryAfter      string
}

func newFigures(seed uint64) *figures {
	return &figures{began: time.Now(), seed: seed, injected: make(map[string]int), counts: make(map[string]int)}
}

func (f *figures) recovered(took time.Duration, after string) {
	if took > f.recovery {
		f.recovery, f.recoveryAfter = took, after
	}
}

func (f *figures) add(text []byte) error {
	var counts map[string]int
	err := json.Unmarshal(text, &counts)
	for what, n := range counts {
		f.counts[what] += n
	}
	return err
}

func (t *tally) add(o tally) {
	t.Count, t.Writes, t.Refused = t.Count+o.Count, t.Writes+o.Writes, t.Refused+o.Refused
}

func (f *figures) table() string {
	var b strings.Builder
	row := func(what string, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	rows := func(counts map[string]int) {
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			row(what, "%d", counts[what])
		}
	}
	fmt.Fprintf(&b, "| seed %d, %v, %d rounds | |\n|---|---|\n", f.seed, time.Since(f.began).Round(time.Second), f.rounds)
	row("worker processes", "%d", f.processes)
	rows(f.counts)
	row("rounds that ended early because the servers had diverged", "%d", f.diverged)
	row("**violations**", "**%d**", f.violations)
	row("updates with the check of the token: written; refused; **lost**", "%d; %d; **%d**", f.checked.Writes, f.checked.Refused, f.checked.lost())
	row("the same updates without the check: written; **lost**", "%d; **%d**", f.unchecked.Writes, f.unchecked.lost())
	row("longest time without progress after a heal", "%v, after: %s", f.recovery.Round(time.Millisecond), f.recoveryAfter)
	rows(f.injected)
	return b.String()
}
