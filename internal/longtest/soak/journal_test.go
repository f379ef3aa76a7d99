//go:build linux || darwin

package soak

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// event is a line of a journal.
type event struct {
	Kind  kind          `json:"k"`
	At    time.Duration `json:"t"`
	Until time.Duration `json:"u,omitempty"` // when it was over
	Hold  int64         `json:"h,omitempty"` // which acquisition of this worker
	Lock  string        `json:"l,omitempty"`
	How   string        `json:"how,omitempty"`
	Mode  string        `json:"m,omitempty"`
	Node  string        `json:"n,omitempty"`
	Token int64         `json:"tok,omitempty"`
	Told  string        `json:"e,omitempty"` // an error, in words
	Held  bool          `json:"held,omitempty"`
}

type kind string

// What workers tell.
const (
	asked       kind = "asked"       // before a call of Lock and its like
	granted     kind = "granted"     // it returned a lock; Held: Err was nil after At
	refused     kind = "refused"     // it returned an error, one that may be
	believed    kind = "believed"    // Err was nil after At
	downgrading kind = "downgrading" // the exclusive hold ends here
	told        kind = "told"        // Err was not nil, before At
	released    kind = "released"    // Unlock was called after At; Held: it said that the lock was held until then
	entered     kind = "entered"     // a re-entry
	downgraded  kind = "downgraded"  // a downgrade the store has confirmed
	bumped      kind = "bumped"      // the counter that checks has taken a write
	stale       kind = "stale"       // it refused; Held: Err was nil after that
	uneasy      kind = "uneasy"      // what a reader saw changed under it
	fault       kind = "fault"       // something that must not happen, in Told
	finished    kind = "finished"    // the worker has closed its client
)

// What the crew's own journal tells besides.
const (
	injected kind = "injected"
	healed   kind = "healed"
	removed  kind = "removed" // an operator removed a node, between At and Until
)

// journal is a file with an event in each line. Each is written at once, as a whole, so that the
// end of the process loses none.
type journal struct {
	mu   sync.Mutex
	file *os.File
	err  error
}

func newJournal(name string) (*journal, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	return &journal{file: f}, err
}

func (j *journal) note(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.file.Write(append(line, '\n')); err != nil && j.err == nil {
		j.err = err
	}
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.file.Close(); j.err == nil {
		j.err = err
	}
	return j.err
}

// readJournal returns the events of a journal. A last line without an end is left out: its writer was killed.
func readJournal(name string) (events []event, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", name, err, lines.Text())
		}
		events = append(events, e)
	}
	return events, nil
}
