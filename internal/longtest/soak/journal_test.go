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

type event struct {
	Kind  kind          `json:"k"`
	At    time.Duration `json:"t"`
	Until time.Duration `json:"u,omitempty"` // end of an event that took time
	Hold  int64         `json:"h,omitempty"` // number of the acquisition within the worker
	Lock  string        `json:"l,omitempty"`
	How   string        `json:"how,omitempty"`
	Mode  string        `json:"m,omitempty"`
	Node  string        `json:"n,omitempty"`
	Token int64         `json:"tok,omitempty"`
	Text  string        `json:"e,omitempty"` // of an error or of a fault
	Held  bool          `json:"held,omitempty"`
}

type kind string

const (
	asked       kind = "asked"       // about to acquire a lock
	granted     kind = "granted"     // a lock was acquired; Held: Err was nil after At
	refused     kind = "refused"     // the call failed with an error to be expected under faults
	confirmed   kind = "confirmed"   // Err was nil after At
	downgrading kind = "downgrading" // held exclusively until At, before a downgrade
	lossSeen    kind = "lossSeen"    // Err returned an error before At
	// Unlock was called after At. Held says whether the lock was held until
	// then.
	released    kind = "released"
	entered     kind = "entered"     // the lock was re-entered
	downgraded  kind = "downgraded"  // the store has confirmed a downgrade
	incremented kind = "incremented" // the checked counter has accepted a write
	// The counter has refused the token. Held says whether Err was nil
	// after that.
	stale              kind = "stale"
	changedUnderReader kind = "changedUnderReader" // somebody wrote while a reader held the lock
	fault              kind = "fault"              // the test must fail, for the reason in Text
	stuck              kind = "stuck"              // the lock named by Text was not granted in time in the last round
	finished           kind = "finished"           // the worker has closed its client
)

const (
	injected kind = "injected"
	healed   kind = "healed"
	removed  kind = "removed" // an operator removed a node between At and Until
)

// journal is a file with one event per line. It survives a kill of the process,
// because each event is a single write.
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

// readJournal returns the events of a journal. It ignores an incomplete last
// line, which a writer leaves if it is killed.
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
