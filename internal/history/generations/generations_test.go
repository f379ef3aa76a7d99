package generations

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	seeds = flag.Uint64("seeds", 0, "how many seeds to run; 0 means 10,000, or 1,000 with -short")
	first = flag.Uint64("seed", 1, "the first seed")
)

func TestRulesKeepTwoHoldersApart(t *testing.T) {
	n := uint64(10_000)
	switch {
	case *seeds > 0:
		n = *seeds
	case testing.Short():
		n = 1_000
	}
	for name, rules := range map[string]func() *rules{"half of the replicas confirm": asBuilt, "all replicas confirm": allConfirm} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants := 0
			for seed := *first; seed < *first+n; seed++ {
				r := play(rules(), seed, false)
				if grants += r.grants; r.failure != "" {
					t.Fatalf("seed %d:\n%s", seed, strings.Join(play(rules(), seed, true).trace, "\n"))
				}
			}
			t.Logf("%d grants in %d histories", grants, n)
		})
	}
}

// Each case breaks one rule, which must make at least one seed fail.
func TestAttacks(t *testing.T) {
	const two, fall, none = "hold the lock", "after", "nobody"
	for name, a := range map[string]struct {
		mutate func(*rules)
		says   string
	}{
		"the end of the grace is stored as a time": {func(r *rules) {
			r.count = func(rest, advance time.Duration) time.Duration { return rest - advance }
		}, two},
		"a grace shorter than a lease": {func(r *rules) { r.grace = timeout / 3 }, two},
		"the generation is the run_id": {func(r *rules) {
			r.generation = func(s *server, _ int) int { return s.runID }
		}, two},
		"the generation is learnt when connecting": {func(r *rules) {
			r.generation = func(_ *server, learnt int) int { return learnt }
		}, two},
		"a node is made in the grace": {func(r *rules) {
			r.admits = func(*server) bool { return true }
		}, two},
		"no replica confirms": {func(r *rules) {
			r.confirms = func(int) int { return 0 }
		}, two},
		"one replica of four confirms": {func(r *rules) {
			r.confirms = func(servers int) int { return min(servers/2, 1) }
		}, two},
		"the grace begins before replicas follow": {func(r *rules) {
			r.accepts = func(receipt, int, int) bool { return true }
		}, two},
		"each attempt begins the grace again": {func(r *rules) {
			r.count = func(time.Duration, time.Duration) time.Duration { return r.grace }
		}, none},
		"tokens are not raised": {func(r *rules) {
			r.raise = func(*data, time.Duration) {}
		}, fall},
		"tokens begin a day ahead of the clock": {func(r *rules) {
			r.raise = func(d *data, _ time.Duration) {
				if d.floor > 0 {
					d.last = max(d.last, d.floor+24*time.Hour)
				}
			}
		}, fall},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := uint64(1); seed <= 20_000; seed++ {
				rules := asBuilt()
				a.mutate(rules)
				if r := play(rules, seed, false); strings.Contains(r.failure, a.says) {
					t.Logf("seed %d: %s", seed, r.failure)
					return
				}
			}
			t.Error("20,000 histories do not show it")
		})
	}
}
