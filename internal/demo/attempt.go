package demo

import (
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// attempt is one attempt of a worker to get the lock and to use it. Times count
// from the beginning of the run.
type attempt struct {
	process int // the number of the process, or 0 if there is only one
	worker  string
	mode    dlock.Mode
	place   driver.Place // the place of its last node in the queue; zero if it had no node

	asked time.Duration
	ended time.Duration // end of the hold, or of the wait if the lock was not granted

	// held reports whether the lock was granted, and not lost at once. The hold
	// lasted from granted to ended, at least: granted is read after Lock has
	// returned, and ended before Unlock is called. If the lock was lost, ended
	// is the last time at which it was known to be held.
	held    bool
	granted time.Duration
	token   int64

	outcome outcome
	err     error // why the attempt ended early, or nil

	increments int     // how often the attempt has incremented the counter; 0 for a reader
	last       reading // the last reading of the counter while the lock was held
	anomaly    string  // what was wrong with the counter when the attempt first saw an anomaly; empty if it saw none
}

// reading holds the counter's value and the number of increments that were
// made. They are read one right after the other.
type reading struct{ value, increments int64 }

type outcome int

const (
	served      outcome = iota
	timedOut            // the wait took longer than -timeout
	interrupted         // the user interrupted the run
	lost                // the store or an operator took the lock away
	failed              // the store or the counter's file gave an error
	killed              // the process was killed during the hold
)

// waited returns how long the worker waited for the lock, whether or not it got
// the lock.
func (t *attempt) waited() time.Duration {
	if t.held {
		return t.granted - t.asked
	}
	return t.ended - t.asked
}

// kind returns the letter by which the output shows a mode.
func kind(m dlock.Mode) string {
	if m == dlock.Shared {
		return "R"
	}
	return "W"
}

// label returns worker and kind, with which each line of the output begins.
func (t *attempt) label() string { return t.worker + " " + kind(t.mode) }
