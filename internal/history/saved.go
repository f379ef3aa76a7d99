package history

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
)

// Kind says what an [Operation] does, such as grant or release the lock.
type Kind int

const (
	Grant Kind = iota
	Reentry
	Unlocking
	Downgrade
	Loss
	Answer
	Refusal
	Clearing
)

// Units is how many units the semaphores of a history have.
const Units = 4

// Operation is an operation in the history of a lock, such as a grant or an
// Unlock. Call and Return are the ticks of the recorder's logical clock at
// which it began and ended.
type Operation struct {
	Call, Return int64
	Actor        int // row in the picture
	Kind         Kind
	Queue        string
	Hold         int        // number of the grant, shared by re-entries
	Handle       int        `json:",omitempty"` // 0 for the first Lock; re-entries count up
	Mode         dlock.Mode `json:",omitempty"` // requested mode; in an Answer, Lock.Mode's result
	Units        int        `json:",omitempty"` // granted units; 0 for a read-write lock
	Token        int64      `json:",omitempty"` // of a Grant; highest that a Clearing removed
	Maybe        bool       `json:",omitempty"` // the lock may have been lost before
}

// Note marks an event in the picture of a history, such as a fault.
type Note struct {
	Row                  string
	From, To             int64
	Color, Text, Details string
}

// Record is a finished history, the input of package
// internal/longtest/histories.
type Record struct {
	Of         string // what was tested, such as redis
	Title      string
	Wrong      []string // descriptions of broken rules that this package found
	Operations []Operation
	Notes      []Note
	// Broken is 0 unless the lock was broken deliberately. Then package
	// histories must refuse at least this many of the records with this Of.
	Broken int `json:",omitempty"`
}

// Directory is the environment variable that names the directory for the
// records.
const Directory = "DLOCK_HISTORIES"

// check saves the history of r. It reports each text in wrong and each broken
// rule as a test error.
func check(t testing.TB, of, title string, r *recorder, wrong []string) *Record {
	t.Helper()
	record := r.record(of, title, wrong)
	for _, w := range record.Wrong {
		t.Errorf("%s: %s", title, w)
	}
	record.save(t)
	return record
}

func (r *recorder) record(of, title string, wrong []string) *Record {
	operations, unexplained := r.history()
	wrong = append(append(wrong, unexplained...), r.breaches()...)
	return &Record{Of: of, Title: title, Wrong: wrong, Operations: operations, Notes: r.notes()}
}

// save writes the record to the directory named by DLOCK_HISTORIES. If that is
// not set, it keeps only records of unexpected failures.
func (r *Record) save(t testing.TB) {
	t.Helper()
	dir := os.Getenv(Directory)
	if dir == "" && (len(r.Wrong) == 0 || r.Broken != 0) {
		return
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp(dir, strings.ReplaceAll(r.Of, " ", "-")+"-*.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	if len(r.Wrong) > 0 && r.Broken == 0 {
		t.Errorf("%s: saved as %s: to draw it, set %s to a directory with this file and run the tests of internal/longtest/histories", r.Title, f.Name(), Directory)
	}
}

// Records reads all records in a directory.
func Records(dir string) (all []*Record, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r := new(Record)
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, nil
}

const (
	faultColor     = "#f4b6b6"
	sharedColor    = "#b6e3f4"
	exclusiveColor = "#f4e3b6"
)

func (r *recorder) notes() (all []Note) {
	add := func(row string, at span, color, text, details string) {
		all = append(all, Note{row, at.call, min(at.ret, r.clock+1), color, text, details})
	}
	for _, c := range r.causes {
		add("faults", c.span, faultColor, c.what, fmt.Sprintf("client %d, queue %q, node %q", c.slot, c.queue, c.node))
	}
	for _, c := range r.contenders {
		color := sharedColor
		if c.mode == dlock.Exclusive {
			color = exclusiveColor
		}
		end := c.givenBack()
		if c.learned != 0 {
			end = min(end, c.learned)
		}
		add(fmt.Sprint("client ", c.client.slot), span{c.granted.ret, max(c.granted.ret, end)}, color,
			fmt.Sprintf("#%d of %s: %v, token %d", c.id, c.queue, c.mode, c.token), fmt.Sprintf("node %s, %d Locks", c.node, len(c.handles)))
	}
	for _, a := range r.attempts {
		if a.err != nil {
			add(fmt.Sprint("client ", a.client.slot), a.span, "", a.String(), a.err.Error())
		}
	}
	return all
}
