package entry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPollPausesAreSpread(t *testing.T) {
	w := WaitPolicy{Kind: Poll, Interval: time.Second}
	seen := map[time.Duration]bool{}
	for range 100 {
		p := w.NextPoll()
		assert.GreaterOrEqual(t, p, time.Second/2)
		assert.Less(t, p, 3*time.Second/2)
		seen[p] = true
	}
	assert.Greater(t, len(seen), 50)
}

func TestAnEntryOnlyMovesForward(t *testing.T) {
	states := []state{joining, waiting, granted, removing, gone}
	legal := map[[2]state]bool{
		{joining, waiting}: true, {waiting, granted}: true, {waiting, removing}: true,
		{granted, removing}: true, {granted, gone}: true, {removing, gone}: true,
	}
	for _, from := range states {
		for _, to := range states {
			e := &Entry{state: from}
			if legal[[2]state{from, to}] {
				e.move(to)
				assert.Equal(t, to, e.state)
			} else {
				assert.Panics(t, func() { e.move(to) }, "%v to %v", from, to)
			}
		}
	}
}
