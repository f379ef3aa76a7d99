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
	Until time.Duration `json:"u,omitempty"` // when the event ended, if it took time
	Hold  int64         `json:"h,omitempty"` // the number of the acquisition; each worker counts its own
	Lock  string        `json:"l,omitempty"`
	How   string        `json:"how,omitempty"`
	Mode  string        `json:"m,omitempty"`
	Node  string        `json:"n,omitempty"`
	Token int64         `json:"tok,omitempty"`
	Text  string        `json:"e,omitempty"` // the text of an error or of a fault
	Held  bool          `json:"held,omitempty"`
}

type kind string

// The kinds of events in the journal of a worker.
const (
	asked       kind = "asked"       // the worker is about to call Lock, RLock, TryLock or TryRLock
	granted     kind = "granted"     // the call returned a lock; Held reports whether Err was nil after At
	refused     kind = "refused"     // the call returned an error that faults explain
	confirmed   kind = "confirmed"   // Err was nil after At
	downgrading kind = "downgrading" // the lock was held exclusively until At
	lossSeen    kind = "lossSeen"    // the worker has read an Err that was not nil, before At
	// Unlock was called after At. Held reports whether the result of Unlock
	// says that the lock was held until that call.
	released    kind = "released"
	entered     kind = "entered"     // the worker has taken the lock again, as a re-entry
	downgraded  kind = "downgraded"  // the store has confirmed a downgrade
	incremented kind = "incremented" // the counter that checks tokens has accepted a write
	// The counter that checks tokens has refused the token. Held reports
	// whether Err was nil after that.
	stale              kind = "stale"
	changedUnderReader kind = "changedUnderReader" // the checked counter changed while a reader held the lock
	fault              kind = "fault"              // something has happened that must not happen; Text says what
	stuck              kind = "stuck"              // in the last round a lock was not granted in time; Text says which
	finished           kind = "finished"           // the worker has closed its client
)

// The kinds of events in the journal of the test itself.
const (
	injected kind = "injected"
	healed   kind = "healed"
	removed  kind = "removed" // an operator removed a node, between At and Until
)

// journal is a file with an event in each line. Each event is written at once
// and as a whole, so that no event is lost if the process is killed.
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

// readJournal returns the events of a journal. It leaves out a last line that
// is not complete, because the process was killed while it wrote.
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
