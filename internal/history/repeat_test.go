package history

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// An even seed must make the same requests in the same order, with the same
// faults, each time.
//
// A few seeds differ, one or two of the first 300: goroutines of a client may
// wake at the same instant, a select may find two channels ready, and a call
// that gives up may or may not have begun to dial. Dependence on the scheduler,
// or on random numbers not drawn from the seed, would affect many more.
func TestEvenSeedsRepeat(t *testing.T) {
	const seeds, allowed = 150, 10
	differ := 0
	for seed := range uint64(seeds) {
		var runs [2]string
		for i := range runs {
			synctest.Test(t, func(t *testing.T) {
				runs[i] = play(t, 2*seed, nil).steps()
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
