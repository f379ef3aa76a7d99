package demo

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// attempt records one attempt of a worker to acquire and use the lock. Times
// count from the start of the run.
type attempt struct {
	Worker     string
	Mode       dlock.Mode
	Place      driver.Place // place in the queue of the attempt's last node; zero if it had none
	Asked      time.Duration
	Granted    time.Duration // after Lock has returned
	Ended      time.Duration // before Unlock, or when the lock was last known to be held
	Held       bool          // false if the lock was not granted, or was lost before it was used
	Token      int64
	Outcome    outcome
	Err        string // why the attempt ended early
	Increments int
	Anomaly    string // first sign in the counter that the lock did not exclude others
	Mark       string // label in the picture at Ended; empty for one derived from Outcome
	Notes      []note // further labels in the picture
}

// note is a label in the picture at the time of an event.
type note struct {
	At   time.Duration
	Text string
}

type outcome int

const (
	served      outcome = iota
	timedOut            // the wait took longer than -timeout
	interrupted         // the user interrupted the run
	lost                // the session ended or an operator removed the node
	failed              // an error of the store or of the counter's file
	killed              // the process was killed during the hold
)

func kind(m dlock.Mode) string {
	if m == dlock.Shared {
		return "R"
	}
	return "W"
}

func (t *attempt) label() string { return t.Worker + " " + kind(t.Mode) }

// reporter prints what workers do and records it. It is safe for concurrent
// use.
type reporter interface {
	// begin waits until all workers have sessions. It returns false if that
	// cannot happen any more.
	begin(ctx context.Context) bool
	now() time.Duration
	// say prints an event and returns its time.
	say(who, verb, what string) time.Duration
	// finished records an attempt that has ended.
	finished(t *attempt)
}

// journal is the reporter that prints to out. Child processes report to their
// parent's journal.
type journal struct {
	mu       sync.Mutex
	out      io.Writer
	began    time.Time
	attempts []*attempt // in the order in which they ended
}

func newJournal(out io.Writer) *journal { return &journal{out: out, began: time.Now()} }

func (j *journal) begin(context.Context) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.began = time.Now()
	return true
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
	line := fmt.Sprintf("%7.3fs  %s  %-8s  %s", at.Seconds(), who, verb, what)
	fmt.Fprintln(j.out, strings.TrimRight(line, " "))
	return at
}

func (j *journal) finished(t *attempt) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.attempts = append(j.attempts, t)
}

// clean makes text from elsewhere, such as a node name, safe to print on one
// line of a terminal.
func clean(text string) string {
	const most = 2048
	text = strings.Join(strings.Fields(text), " ")
	var b strings.Builder
	for _, r := range text {
		if b.Len() > most {
			return fmt.Sprintf("%s... (%d bytes)", &b, len(text))
		}
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
