package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
)

// everything lists the events that must occur in any 500 runs. Without
// this check, a part of the simulation could stop working unnoticed.
var everything = []string{
	"cancel", "client closed", "closed", "create without list", "create without list and watch",
	"create without watch", "cut off", "delayed", "downgrade", "grant", "locked", "nested",
	"node of a waiter removed", "node removed", "process paused", "queue removed", "re-entry", "release lost", "reply lost",
	"request lost", "request repeated", "session ended", "session expired", "storm won", "timeout", "units granted",
	"loss reported by Err alone", "unlock: client closed", "unlock: lock lost", "unlock: store unavailable",
	"watch closed early",
}

func (t *tally) wantEverything(tt *testing.T) {
	for _, what := range everything {
		if t.counts[what] == 0 {
			tt.Errorf("this happened in no run: %s", what)
		}
	}
}

type tally struct {
	mu     sync.Mutex
	runs   int
	counts map[string]int
}

func (t *tally) add(j *journal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = make(map[string]int)
	}
	t.runs++
	for what, n := range j.counts {
		t.counts[what] += n
	}
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs", t.runs)
	for _, what := range slices.Sorted(maps.Keys(t.counts)) {
		fmt.Fprintf(&b, "\n%9d %s", t.counts[what], what)
	}
	return b.String()
}
