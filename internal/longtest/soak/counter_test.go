//go:build linux || darwin

package soak

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A lost update makes a counter's number differ from its count of writes.
type counter struct{ name string }

type tally struct {
	Count   int64
	Writes  int64 // accepted writes
	Refused int64 // refused reads and writes

	// Used only by the counter that checks tokens:
	Token  int64 // highest token of a writer
	Owner  int64 // acquisition that has the token
	Reader int64 // highest token of a reader
	Twice  int64 // how often two writers had the same token
}

// lost returns how many updates were overwritten by a writer that had not seen
// them.
func (c tally) lost() int64 { return c.Writes - c.Count }

var errStale = errors.New("stale token")

func checkedCounter(dir, lock string) counter   { return counter{counterFile(dir, lock, "checked")} }
func uncheckedCounter(dir, lock string) counter { return counter{counterFile(dir, lock, "unchecked")} }

func counterFile(dir, lock, kind string) string {
	return filepath.Join(dir, strings.ReplaceAll(lock, "/", "-")+"."+kind)
}

// begin reads the number for a new writer, and rejects lower tokens from then
// on.
func (c counter) begin(token, owner int64) (int64, error) {
	return c.step(func(t *tally) error {
		if err := t.refuse(token, max(t.Token, t.Reader)); err != nil {
			return err
		}
		if token == t.Token && owner != t.Owner {
			t.Twice++
		}
		t.Token, t.Owner = token, owner
		return nil
	})
}

func (c counter) write(count, token int64) error {
	_, err := c.step(func(t *tally) error {
		if err := t.refuse(token, max(t.Token, t.Reader)); err != nil {
			return err
		}
		t.Count, t.Writes = count, t.Writes+1
		return nil
	})
	return err
}

// readAs reads the number, after which begin and write reject lower tokens.
func (c counter) readAs(token, _ int64) (int64, error) {
	return c.step(func(t *tally) error {
		if err := t.refuse(token, t.Token); err != nil {
			return err
		}
		t.Reader = max(t.Reader, token)
		return nil
	})
}

func (c counter) writeUnchecked(count int64) error {
	_, err := c.step(func(t *tally) error {
		t.Count, t.Writes = count, t.Writes+1
		return nil
	})
	return err
}

func (c counter) read() (tally, error) {
	var seen tally
	_, err := c.step(func(t *tally) error { seen = *t; return nil })
	return seen, err
}

func (t *tally) refuse(token, than int64) error {
	if token < than {
		t.Refused++
		return fmt.Errorf("%w: %d after %d", errStale, token, than)
	}
	return nil
}

// step applies do under a file lock, and returns the number from before.
func (c counter) step(do func(*tally) error) (int64, error) {
	f, err := os.OpenFile(c.name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := flock(f); err != nil {
		return 0, err
	}
	var t tally
	record := make([]byte, binary.Size(t))
	if n, _ := f.ReadAt(record, 0); n > 0 {
		if _, err := binary.Decode(record, binary.BigEndian, &t); err != nil {
			return 0, err
		}
	}
	was := t
	refused := do(&t)
	if t == was {
		return was.Count, refused
	}
	if _, err := binary.Encode(record, binary.BigEndian, t); err != nil {
		return 0, err
	}
	_, err = f.WriteAt(record, 0) // atomic even if the process is killed
	return was.Count, errors.Join(refused, err)
}

func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
