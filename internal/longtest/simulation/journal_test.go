package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// journal is what happened in a run. It is put into words only for somebody who reads it.
type journal struct {
	mu      sync.Mutex
	entries []entry
	failure string
	counts  map[string]int // of what happened
}

type entry struct {
	remark bool
	at     time.Time
	format string
	args   []any
}

// note takes down what the run has done: let something pass, or played a fault. It is what a seed
// repeats.
func (j *journal) note(format string, args ...any) { j.add(entry{false, time.Now(), format, args}) }

// remark takes down what came of it. Several things come of one step, in an order which is not the
// seed's.
func (j *journal) remark(format string, args ...any) { j.add(entry{true, time.Now(), format, args}) }

func (j *journal) add(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
}

// count counts something that a run may or may not have come across.
func (j *journal) count(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts == nil {
		j.counts = make(map[string]int)
	}
	j.counts[what]++
}

// fail says that the run has failed. The first reason counts.
func (j *journal) fail(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	j.remark("FAILED: %s", msg)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failure == "" {
		j.failure = msg
	}
}

func (j *journal) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failure != ""
}

// epoch is when virtual time begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// String returns everything.
func (j *journal) String() string { return j.text(func(entry) bool { return true }) }

// steps returns the notes alone.
func (j *journal) steps() string { return j.text(func(e entry) bool { return !e.remark }) }

func (j *journal) text(wanted func(entry) bool) string {
	var b strings.Builder
	for _, e := range j.entries {
		if wanted(e) {
			fmt.Fprintf(&b, "%14v "+e.format+"\n", append([]any{e.at.Sub(epoch)}, e.args...)...)
		}
	}
	return b.String()
}
