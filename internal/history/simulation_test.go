package history

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Int("seeds", 500, "how many seeds to run")
	first = flag.Uint64("seed", 1, "the first seed")
)

func TestNoSeedBreaksTheLock(t *testing.T) {
	var next atomic.Uint64
	next.Store(*first)
	last := *first + uint64(*seeds)
	var seen figures
	var differ atomic.Int32
	t.Run("seeds", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < last && !t.Failed(); seed = next.Add(1) - 1 {
					r := one(t, seed)
					seen.add(r.record, r.saved)
					seen.count(r.counts)
					if seed <= twice && seed%2 == 0 && !repeats(t, r) {
						differ.Add(1)
					}
				}
			})
		}
	})
	if n := differ.Load(); n > allowed {
		t.Errorf("%d of %d even seeds did not repeat", n, twice/2)
	}
	t.Log(&seen)
	if *seeds >= 500 && !t.Failed() {
		seen.complete(t, everything...)
	}
}

// Even seeds must repeat, except a few whose goroutines wake at the same
// instant.
const twice, allowed = 300, 10

func repeats(t *testing.T, r *run) bool {
	var again *run
	synctest.Test(t, func(t *testing.T) { again = play(t, r.seed, nil) })
	was, is := strings.Split(r.steps(), "\n"), strings.Split(again.steps(), "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			t.Logf("seed %d: two runs differ:\n%s\nthen %s\nor   %s", r.seed, strings.Join(was[max(0, i-12):i], "\n"), was[i], is[i])
			return false
		}
	}
	return len(was) == len(is)
}

// kept is the number of seeds whose records are saved for package histories.
const kept = 300

func one(t *testing.T, seed uint64) *run {
	var r *run
	synctest.Test(t, func(t *testing.T) { r = play(t, seed, nil) })
	r.saved = r.record.record("virtual time", fmt.Sprint("seed ", seed), r.all)
	if len(r.saved.Wrong) > 0 {
		t.Error(report(seed, r))
	}
	if os.Getenv(Directory) != "" && (seed <= kept || len(r.saved.Wrong) > 0) {
		r.saved.save(t)
	}
	return r
}

func report(seed uint64, r *run) string {
	return fmt.Sprintf("seed %d: %s\n%v\nagain: go test ./internal/history -run=TestNoSeed -seeds=1 -seed=%d",
		seed, strings.Join(r.saved.Wrong, "\n\t"), r, seed)
}

// All events must occur in 500 runs, so no part of the simulation stops
// unnoticed.
var everything = []string{
	"client closed", "create without list", "create without list and watch", "create without watch", "cut off", "delayed",
	"node of a waiter removed", "node removed", "process paused", "queue removed", "release lost", "reply lost",
	"request lost", "request repeated", "session ended", "session expired", "grants of units", "terms", "runs", "ticks done",
	"loss reported by Err alone", "unlock: client closed", "unlock: lock lost", "unlock: store unavailable", "watch closed early",
}
