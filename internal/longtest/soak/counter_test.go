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

// counter is a number in a file, which processes increment in two steps, read
// and write. The file also counts the writes. Each write should add one, so the
// difference is the number of lost updates.
//
// All methods are atomic, even if the process is killed.
type counter struct{ name string }

// tally is the content of the file.
type tally struct {
	Count   int64
	Writes  int64 // accepted writes
	Token   int64 // highest token of a writer, if the counter checks tokens
	Refused int64 // refused reads and writes
}

// lost returns the number of updates overwritten by a writer that had not read
// them.
func (c tally) lost() int64 { return c.Writes - c.Count }

var errStale = errors.New("stale token")

func checkedCounter(dir, lock string) counter   { return counter{counterFile(dir, lock, "checked")} }
func uncheckedCounter(dir, lock string) counter { return counter{counterFile(dir, lock, "unchecked")} }

func counterFile(dir, lock, kind string) string {
	return filepath.Join(dir, strings.ReplaceAll(lock, "/", "-")+"."+kind)
}

// begin stores a new holder's token and reads the number.
func (c counter) begin(token int64) (int64, error) {
	return c.step(func(t *tally) error { return t.accept(token) })
}

// write stores a new number for the holder with that token.
func (c counter) write(count, token int64) error {
	_, err := c.step(func(t *tally) error {
		if err := t.accept(token); err != nil {
			return err
		}
		t.Count, t.Writes = count, t.Writes+1
		return nil
	})
	return err
}

// readAs reads the number for a reader. Its token is compared with the highest
// token of a writer, but not stored.
func (c counter) readAs(token int64) (int64, error) {
	return c.step(func(t *tally) error { return t.compare(token) })
}

// writeUnchecked stores a new number without checking a token.
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

func (t *tally) compare(token int64) error {
	if token < t.Token {
		t.Refused++
		return fmt.Errorf("%w: %d after %d", errStale, token, t.Token)
	}
	return nil
}

func (t *tally) accept(token int64) error {
	if err := t.compare(token); err != nil {
		return err
	}
	t.Token = token
	return nil
}

// step calls do with the content of the file and writes back the changes, even
// if do returns an error. It holds a file lock, which the system releases if
// the process is killed. It returns the number before the step.
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
	_, err = f.WriteAt(record, 0) // a small write is atomic even if the process is killed
	return was.Count, errors.Join(refused, err)
}

func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
