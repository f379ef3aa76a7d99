package demo

import (
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// attempt is one worker's way through the lock, once. Times count from the beginning of the run.
type attempt struct {
	worker string
	mode   dlock.Mode
	place  driver.Place // the last one in the queue, zero if there was none

	asked time.Duration
	ended time.Duration // of the hold, or of the wait if there was no hold

	// held tells whether the lock was won, and not lost at once. The hold lasted from granted to ended, at
	// least: granted is read after Lock has returned, and ended before Unlock is called. If the lock was lost, ended
	// is when it was last known to be held.
	held    bool
	granted time.Duration
	token   int64

	outcome outcome
	err     error // what ended it early, or nil

	increments int     // made by a writer
	last       reading // the last one while the lock was held
	anomaly    string  // about the counter, or nothing
}

// reading is what the counter and the tally said at one moment.
type reading struct{ value, increments int64 }

type outcome int

const (
	served      outcome = iota
	timedOut            // nobody's fault
	interrupted         // by the user
	lost                // the store or an operator took the lock away
	failed              // the store or the counter's file gave an error
)

// waited is how long the worker waited for the lock, or for nothing.
func (t *attempt) waited() time.Duration {
	if t.held {
		return t.granted - t.asked
	}
	return t.ended - t.asked
}

func kind(m dlock.Mode) string {
	if m == dlock.Shared {
		return "R"
	}
	return "W"
}

// label is worker and kind, as they stand at the beginning of lines.
func (t *attempt) label() string { return t.worker + " " + kind(t.mode) }
