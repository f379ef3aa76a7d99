package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock"
)

func drawn(attempts []*attempt, terminal int) string {
	var out bytes.Buffer
	drawTimeline(&out, attempts, terminal)
	return out.String()
}

func TestTheTimeLineShowsEachHold(t *testing.T) {
	attempts := []*attempt{
		hold(dlock.Shared, 3, 10, 200, 290), // rows are in queue order, so this one comes after w1 and w2
		hold(dlock.Shared, 1, 0, 0, 100),
		hold(dlock.Exclusive, 2, 20, 100, 200),
		{Worker: "w9", Mode: dlock.Exclusive, Asked: ms(150), Ended: ms(250), Outcome: timedOut},
	}
	assert.Equal(t, strings.TrimPrefix(`
Holds in order of arrival; a column is 10ms

        |0s       |100ms    |200ms
  w1 R  rrrrrrrrrr
  w2 W    ........WWWWWWWWWW
  w3 R   ...................rrrrrrrrr
  w9 W                 ..........x

  . waits   r holds it shared   W holds it exclusive   x gave up, lost, failed or killed

`, ""), drawn(attempts, 44))
}

func TestTheTimeLineFitsTheTerminal(t *testing.T) {
	long := hold(dlock.Exclusive, 1, 0, 0, 5_000)
	long.Worker = strings.Repeat("h", 31) + "-p1-01" // as long as a name gets in practice
	for _, width := range []int{80, 100, 120, 200} {
		for _, end := range []time.Duration{0, 1, time.Millisecond, 999 * time.Millisecond, time.Second, time.Hour} {
			long.Ended = end
			for line := range strings.Lines(drawn([]*attempt{long}, width)) {
				if !strings.Contains(line, legend) {
					assert.LessOrEqual(t, len(line)-1, width, "%d columns: %s", width, line)
				}
			}
		}
	}
}

func TestNoTwoHoldsThatFollowEachOtherShowInOneColumn(t *testing.T) {
	var attempts []*attempt
	for i := range 9 { // choose holds that mostly end within a column, not at its edge
		attempts = append(attempts, hold(dlock.Exclusive, int64(i+1), 0, i*37, (i+1)*37))
	}
	l := newTimeline(attempts, 55)
	for column := range l.columns {
		n := 0
		for _, attempt := range attempts {
			if row := l.row(attempt); column < len(row) && row[column] == markExclusive {
				n++
			}
		}
		assert.LessOrEqual(t, n, 1, "column %d", column)
	}
}

func TestAHoldShorterThanAColumnShows(t *testing.T) {
	l := timeline{columns: 10, column: time.Second}
	assert.Equal(t, "   W", l.row(hold(dlock.Exclusive, 1, 3100, 3100, 3101)))
}

func TestALongRunIsCut(t *testing.T) {
	var attempts []*attempt
	for range maxRows + 7 {
		attempts = append(attempts, hold(dlock.Shared, 1, 0, 0, 10))
	}
	assert.Contains(t, drawn(attempts, 80), "  and 7 more\n")
}
