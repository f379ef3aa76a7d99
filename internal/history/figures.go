package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock"
)

type figures struct {
	mu                    sync.Mutex
	histories, operations int
	counts                map[string]int
}

func (f *figures) add(r *recorder, record *Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = make(map[string]int)
	}
	f.histories++
	f.operations += len(record.Operations)
	for _, a := range r.attempts {
		f.counts[outcome(a)]++
	}
	for _, c := range r.contenders {
		if lost, _, _ := r.loss(c); lost.call != forever {
			f.counts["lost"]++
		}
		for _, h := range c.handles {
			f.counts["downgrades"] += len(h.lowered)
			f.counts["answers"] += len(h.answers)
		}
	}
	for _, c := range r.causes {
		what, _, _ := strings.Cut(c.what, " for ")
		f.counts["fault: "+what]++
	}
}

func (f *figures) count(counts map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for what, n := range counts {
		f.counts[what] += n
	}
}

func outcome(a *attempt) string {
	switch err := a.err; {
	case a.got != nil && a.got.number > 0:
		return "re-entries"
	case a.got != nil && a.units > 0:
		return "grants of units"
	case a.got != nil && a.campaign:
		return "terms"
	case a.got != nil && !a.tick.IsZero():
		return "runs"
	case a.got != nil:
		return "grants"
	case err == nil:
		return "ticks done"
	case errors.Is(err, dlock.ErrLocked):
		return "refused: locked"
	case errors.Is(err, dlock.ErrUpgrade):
		return "refused: upgrade"
	case errors.Is(err, dlock.ErrClosed):
		return "refused: closed"
	case errors.Is(err, dlock.ErrLost):
		return "refused: lost"
	case errors.Is(err, dlock.ErrTimeout):
		return "timed out"
	case errors.Is(err, dlock.ErrUnavailable):
		return "not answered"
	}
	return "cancelled"
}

func (f *figures) String() string {
	text := fmt.Sprintf("%d histories, %d operations", f.histories, f.operations)
	for _, name := range slices.Sorted(maps.Keys(f.counts)) {
		text += fmt.Sprintf("; %s %d", name, f.counts[name])
	}
	return text
}

// complete fails the test if some kind of event has never occurred, because
// histories without faults prove little.
func (f *figures) complete(t testing.TB, more ...string) {
	t.Helper()
	for _, name := range append(more,
		"re-entries", "grants", "refused: locked", "refused: upgrade", "refused: closed", "refused: lost", "timed out", "cancelled",
		"lost", "downgrades",
	) {
		assert.NotZero(t, f.counts[name], name)
	}
}
