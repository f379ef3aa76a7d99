package simulation

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Int("seeds", 2_000, "how many seeds to run")
	first = flag.Uint64("seed", 1, "the first seed")
)

func TestNoSeedBreaksTheLock(t *testing.T) {
	var next atomic.Uint64
	next.Store(*first)
	last := *first + uint64(*seeds)
	for w := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
			t.Parallel()
			for seed := next.Add(1) - 1; seed < last && !t.Failed(); seed = next.Add(1) - 1 {
				one(t, seed)
			}
		})
	}
}

func one(t *testing.T, seed uint64) {
	var failure string
	var journal []string
	synctest.Test(t, func(t *testing.T) { failure, journal = play(t, seed) })
	if failure != "" {
		t.Errorf("seed %d: %s\n%s\nagain: go test ./internal/simulation -seeds 1 -seed %d", seed, failure, strings.Join(journal, "\n"), seed)
	}
}

// Two goroutines of one client that wake at one instant may still run in either order, so one
// seed in a thousand or so does not repeat.
func TestSeedsRepeat(t *testing.T) {
	const seeds, allowed = 400, 4
	differ := 0
	for seed := range uint64(seeds) {
		var runs [2]string
		for i := range runs {
			synctest.Test(t, func(t *testing.T) {
				_, journal := play(t, 2*seed)
				runs[i] = strings.Join(journal, "\n")
			})
		}
		if runs[0] != runs[1] {
			differ++
			t.Logf("seed %d: two runs differ:\n%s", 2*seed, firstDifference(runs[0], runs[1]))
		}
	}
	if differ > allowed {
		t.Errorf("%d of %d seeds did not repeat", differ, seeds)
	}
}

func firstDifference(a, b string) string {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("%s\nthen %s\nor   %s", strings.Join(as[max(0, i-12):i], "\n"), as[i], bs[i])
		}
	}
	return "one is longer"
}
