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

// counter is a number in a file that processes bump by reading it and, later, writing it. It keeps beside
// the number how many writes it has taken: as each write is meant to add one, the difference is what was lost.
//
// Every method is one atomic step, even if the process is killed in it.
type counter struct{ name string }

// tally is what the file holds.
type tally struct {
	Count   int64 // as written
	Writes  int64 // how many were taken
	Token   int64 // the highest that a writer has shown, if tokens are checked
	Refused int64 // how many were not taken, of writers and readers
}

// lost is how many updates were overwritten by somebody who had not seen them.
func (c tally) lost() int64 { return c.Writes - c.Count }

var errStale = errors.New("stale token")

func checkedCounter(dir, lock string) counter   { return counter{counterFile(dir, lock, "checked")} }
func uncheckedCounter(dir, lock string) counter { return counter{counterFile(dir, lock, "unchecked")} }

func counterFile(dir, lock, kind string) string {
	return filepath.Join(dir, strings.ReplaceAll(lock, "/", "-")+"."+kind)
}

// begin is how a new holder begins: it writes its token, so that the counter knows of it, and reads.
func (c counter) begin(token int64) (int64, error) {
	return c.step(func(t *tally) error { return t.admit(token) })
}

// write stores count for a holder with that token.
func (c counter) write(count, token int64) error {
	_, err := c.step(func(t *tally) error {
		if err := t.admit(token); err != nil {
			return err
		}
		t.Count, t.Writes = count, t.Writes+1
		return nil
	})
	return err
}

// look reads for somebody who shares the lock: the token is compared, and does not count.
func (c counter) look(token int64) (int64, error) {
	return c.step(func(t *tally) error { return t.compare(token) })
}

// writeUnchecked stores count for anybody.
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

func (t *tally) admit(token int64) error {
	if err := t.compare(token); err != nil {
		return err
	}
	t.Token = token
	return nil
}

// step changes the file under its own lock, which goes with the process that has it, and returns the
// count as it was. What do has changed is kept also when it returns an error.
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
	_, err = f.WriteAt(record, 0) // one small write: it is done, or it is not
	return was.Count, errors.Join(refused, err)
}

func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
