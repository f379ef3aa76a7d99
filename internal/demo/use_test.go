package demo

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

func use(t *testing.T, c counter, mode dlock.Mode, h held) *attempt {
	w := &worker{name: "w1", hold: 100 * time.Millisecond, counter: c, log: newJournal(io.Discard)}
	attempt := &attempt{Worker: "w1", Mode: mode, Held: true}
	w.use(t.Context(), attempt, h)
	return attempt
}

func TestAHolderSeesTheIncrementsOfAnotherWorker(t *testing.T) {
	for _, mode := range []dlock.Mode{dlock.Shared, dlock.Exclusive} {
		synctest.Test(t, func(t *testing.T) {
			c := new(memoryCounter)
			time.AfterFunc(55*time.Millisecond, func() { increment(t, c) })
			assert.Contains(t, use(t, c, mode, notHeld(1)).Anomaly, "w1 "+kind(mode)+" found ")
		})
	}
}

func TestAReaderSeesTheCounterChangeEvenIfNoIncrementIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(memoryCounter)
		time.AfterFunc(55*time.Millisecond, func() { increment(t, c) })
		assert.Equal(t, "w1 R found 1 where it had left 0", use(t, c, dlock.Shared, notHeld(1)).Anomaly)
	})
}

func TestAWriterMakesTenIncrements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(memoryCounter)
		attempt := use(t, c, dlock.Exclusive, notHeld(1))
		assert.Empty(t, attempt.Anomaly)
		assert.Equal(t, incrementsPerHold, attempt.Increments)
		requireCounter(t, c, incrementsPerHold, incrementsPerHold)
	})
}

// contested is a counter that simulates the loss of the lock. During its third
// read it closes lost and changes its value, as another worker would.
type contested struct {
	memoryCounter
	lost  chan struct{}
	reads int
}

func (c *contested) read() (value, writes int64, err error) {
	if c.reads++; c.reads == 3 {
		close(c.lost)
		c.value.Store(100)
	}
	return c.memoryCounter.read()
}

func TestAReadingAfterALossIsNoAnomaly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &contested{lost: make(chan struct{})}
		attempt := use(t, c, dlock.Exclusive, lostHold{1, c.lost})
		assert.Empty(t, attempt.Anomaly)
		assert.Equal(t, lost, attempt.Outcome)
		assert.Equal(t, 2, attempt.Increments)
		assert.EqualValues(t, 100, c.value.Load(), "nothing is written after the loss")
	})
}

// broken is a counter that cannot be written, as if the disk were full.
type broken struct{ memoryCounter }

func (*broken) write(int64) error { return errors.New("disk full") }

func TestACounterThatCannotBeWrittenIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempt := use(t, new(broken), dlock.Exclusive, notHeld(1))
		assert.Equal(t, failed, attempt.Outcome)
		require.Contains(t, attempt.Err, "disk full")
		assert.Zero(t, attempt.Increments)
	})
}
