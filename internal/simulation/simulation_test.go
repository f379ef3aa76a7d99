package simulation

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run; 0 means 20,000, of which the race detector sees 500")
	first = flag.Uint64("seed", 1, "the first seed")
)

const (
	manySeeds  = 20_000
	racedSeeds = 500 // fewer, because the race detector makes a run ten times slower
)

func TestNoSeedBreaksTheLock(t *testing.T) {
	switch {
	case *seeds > 0:
		runSeeds(t, *first, *seeds)
	case raced:
		runSeeds(t, *first, racedSeeds)
	default:
		runSeeds(t, *first, manySeeds)
	}
}

func TestNoFurtherSeedBreaksTheLock(t *testing.T) {
	if testing.Short() || !raced || *seeds > 0 {
		t.Skip("runs only after the raced seeds of TestNoSeedBreaksTheLock")
	}
	runUnraced(t, *first+racedSeeds, manySeeds-racedSeeds)
}

func runSeeds(t *testing.T, first uint64, n int) {
	var next atomic.Uint64
	next.Store(first)
	last := first + uint64(n)
	var seen tally
	t.Run("seeds", func(t *testing.T) {
		for w := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker", w), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < last && !t.Failed(); seed = next.Add(1) - 1 {
					seen.add(one(t, seed))
				}
			})
		}
	})
	t.Log(&seen)
	if n >= racedSeeds && !t.Failed() {
		seen.wantEverything(t)
	}
}

func one(t *testing.T, seed uint64) *journal {
	var j *journal
	synctest.Test(t, func(t *testing.T) { j = play(t, seed, nil) })
	if j.failure != "" {
		t.Error(report(seed, j))
	}
	return j
}

func report(seed uint64, j *journal) string {
	return fmt.Sprintf("seed %d: %s\n%v\nagain: go test ./internal/simulation -run=TestNoSeed -seeds=1 -seed=%d",
		seed, j.failure, j, seed)
}

// runUnraced runs seeds in a test binary built without the race detector, which
// is faster. Without a go command, it runs them in this process.
func runUnraced(t *testing.T, first uint64, n int) {
	if _, err := exec.LookPath("go"); err != nil {
		runSeeds(t, first, n)
		return
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-race=false", "-count=1", "-v", "-run=^TestNoSeedBreaksTheLock$",
		"-timeout=8m", ".", fmt.Sprint("-seeds=", n), fmt.Sprint("-seed=", first))
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	t.Logf("%s", out)
}
