package history

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// journal records the events of a run. Entries are formatted only when printed.
type journal struct {
	complaints

	mu      sync.Mutex
	entries []entry
	counts  map[string]int // how often each kind of event has happened
}

type entry struct {
	remark bool
	at     time.Time
	format string
	args   []any
}

// note records an action, such as an injected fault. A seed always yields equal
// notes.
func (j *journal) note(format string, args ...any) { j.add(entry{false, time.Now(), format, args}) }

// remark records a result. Runs are compared without remarks, whose order
// depends on the scheduler.
func (j *journal) remark(format string, args ...any) { j.add(entry{true, time.Now(), format, args}) }

func (j *journal) add(e entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
}

func (j *journal) count(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.counts == nil {
		j.counts = make(map[string]int)
	}
	j.counts[what]++
}

func (j *journal) fail(format string, args ...any) {
	j.remark("FAILED: "+format, args...)
	j.complaints.add(format, args...)
}

// epoch is the time at which virtual time starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (j *journal) String() string { return j.text(func(entry) bool { return true }) }

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
