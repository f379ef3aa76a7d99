package simulation

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// An even seed does the same again: the same requests in the same order, the same faults. What
// can still differ is which of two goroutines of one client comes first that wake at one instant,
// or which of two ready channels a select takes, or whether who goes away then has begun to dial. Few seeds have such an instant: in the first 300, one or two
// differ from one run to the next. Where the order of goroutines counts, or chance that is not the seed's, many do.
func TestEvenSeedsRepeat(t *testing.T) {
	const seeds, allowed = 300, 10
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
