package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// reporter receives what workers do. Its clock counts from the beginning of the
// run. It is safe for use by many goroutines.
type reporter interface {
	now() time.Duration
	// say prints an event and returns the time that it prints.
	say(who, verb, what string) time.Duration
	// finished keeps an attempt that has ended.
	finished(t *attempt)
}

// journal is the reporter of the process that prints. The lines that it prints
// are in the order of their times.
type journal struct {
	mu       sync.Mutex
	out      io.Writer
	began    time.Time
	attempts []*attempt // in the order in which they ended
}

func newJournal(out io.Writer) *journal { return &journal{out: out, began: time.Now()} }

// begin sets the beginning of the run, from which all times count, to the
// present.
func (j *journal) begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.began = time.Now()
}

func (j *journal) now() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return time.Since(j.began)
}

func (j *journal) say(who, verb, what string) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := time.Since(j.began)
	line := fmt.Sprintf("%7.3fs  %s  %s", at.Seconds(), who, verb)
	if what != "" {
		line = fmt.Sprintf("%7.3fs  %s  %-8s  %s", at.Seconds(), who, verb, what)
	}
	fmt.Fprintln(j.out, line)
	return at
}

func (j *journal) finished(t *attempt) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attempts = append(j.attempts, t)
}
