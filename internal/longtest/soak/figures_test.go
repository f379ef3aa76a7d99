//go:build linux || darwin

package soak

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

type figures struct {
	began  time.Time
	seed   uint64
	rounds int

	injected   map[string]int
	violations int
	diverged   int // ended early because the servers had diverged

	exclusive, shared, tried                      int // acquisitions; tried counts TryLock and TryRLock
	entries, downgrades, calls                    int
	refusals                                      map[string]int
	writes, uncheckedWrites                       int64
	lostWith, lostWithout                         int64
	refusedTokens                                 int64
	changedUnderReader, processes, losses, judged int
	sequenceRestarts                              int
	margin                                        time.Duration // shortest time from a noticed loss to the next grant
	removalSeen                                   time.Duration // longest time until a holder noticed the removal of its node
	recovery                                      time.Duration // longest time from a heal until every member had acquired a lock
	recoveryAfter                                 string
}

func newFigures(seed uint64) *figures {
	return &figures{began: time.Now(), seed: seed, injected: make(map[string]int), refusals: make(map[string]int)}
}

func (f *figures) recovered(took time.Duration, after string) {
	if took > f.recovery {
		f.recovery, f.recoveryAfter = took, after
	}
}

func (f *figures) count(events []event) {
	f.processes++
	for _, e := range events {
		switch e.Kind {
		case asked:
			f.calls++
		case granted:
			if e.Mode == "exclusive" {
				f.exclusive++
			} else {
				f.shared++
			}
			if e.How == "try" {
				f.tried++
			}
		case refused:
			f.refusals[class(e.Text)]++
		case entered:
			f.entries++
		case downgraded:
			f.downgrades++
		case changedUnderReader:
			f.changedUnderReader++
		case lossSeen:
			f.losses++
		}
	}
}

// class returns the text of the sentinel error that an error text contains, or
// "other".
func class(text string) string {
	for _, known := range []string{dlock.ErrLocked.Error(), "timed out", dlock.ErrLost.Error(),
		context.Canceled.Error(), driver.ErrUnavailable.Error()} {
		if strings.Contains(text, known) {
			return known
		}
	}
	return "other"
}

// atOnce limits the gap between the last check that found a lock held and the
// check that noticed its loss. After a longer gap, the time of the loss is too
// uncertain to count in the figures.
const atOnce = 60 * time.Millisecond

// measure adds the acquisitions of one lock to the figures.
func (f *figures) measure(all []*holding) {
	slices.SortFunc(all, func(a, b *holding) int { return cmp.Compare(a.from, b.from) })
	var seq int64
	for i, h := range all {
		if _, n, _ := driver.ParseName(h.node); n < seq-seqLimit/2 {
			f.sequenceRestarts++
			seq = n
		} else {
			seq = max(seq, n)
		}
		switch {
		case h.removedAt != 0 && h.held:
			f.removalSeen = max(f.removalSeen, h.to-h.removedBy)
		case h.held && h.lossSeen != 0 && h.lossSeen-h.to <= atOnce:
			if next := nextAfter(all[i+1:], h); next != nil && (h.unlocked == 0 || next.from < h.unlocked) {
				if margin := next.from - h.lossSeen; f.judged == 0 || margin < f.margin {
					f.margin = margin
				}
				f.judged++
			}
		}
	}
}

// nextAfter returns the first acquisition that had to wait for the end of h.
func nextAfter(all []*holding, h *holding) *holding {
	for _, next := range all {
		if next.held && next.from > h.to && (next.exclusive || h.exclusive && h.downgrading == 0) {
			return next
		}
	}
	return nil
}

func (f *figures) table() string {
	var b strings.Builder
	row := func(what string, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "| seed %d, %v, %d rounds | |\n|---|---|\n", f.seed, time.Since(f.began).Round(time.Second), f.rounds)
	row("worker processes", "%d", f.processes)
	row("calls of Lock, RLock, TryLock, TryRLock", "%d", f.calls)
	row("acquisitions, exclusive", "%d", f.exclusive)
	row("acquisitions, shared", "%d", f.shared)
	row("of both, by TryLock and TryRLock", "%d", f.tried)
	row("re-entries; downgrades", "%d; %d", f.entries, f.downgrades)
	for _, class := range slices.Sorted(maps.Keys(f.refusals)) {
		row("calls that ended with: "+class, "%d", f.refusals[class])
	}
	row("times that the sequences of a queue started over", "%d", f.sequenceRestarts)
	row("locks lost while they were held", "%d", f.losses)
	row("rounds that ended early because the servers had diverged", "%d", f.diverged)
	row("**violations**", "**%d**", f.violations)
	row("updates with the check of the token: written; refused; **lost**", "%d; %d; **%d**", f.writes, f.refusedTokens, f.lostWith)
	row("the same updates without the check: written; **lost**", "%d; **%d**", f.uncheckedWrites, f.lostWithout)
	row("reads during which a writer that had lost the lock wrote", "%d", f.changedUnderReader)
	row("smallest margin between learning of a loss and the next grant, where no Unlock came between", "%v (of %d)", f.margin.Round(time.Millisecond), f.judged)
	row("longest time that a lock was confirmed after an operator had removed its node", "%v", f.removalSeen.Round(time.Millisecond))
	row("longest time without progress after a heal", "%v, after: %s", f.recovery.Round(time.Millisecond), f.recoveryAfter)
	sum := 0
	for _, n := range f.injected {
		sum += n
	}
	row("faults injected and healed", "%d", sum)
	for _, name := range slices.Sorted(maps.Keys(f.injected)) {
		row("- "+name, "%d", f.injected[name])
	}
	return b.String()
}
