package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock"
)

// counter is a number that writers increment with a load and a store. If two
// writers do so at the same time, an increment is lost. The counter also counts
// the increments in a way that never loses one. If the lock works, both numbers
// are equal whenever a holder reads them.
//
// Each method is atomic. Only the lock makes a sequence of calls atomic.
type counter interface {
	load() (int64, error)
	store(n int64) error
	countIncrement() error      // to be called after each store
	increments() (int64, error) // how many increments were counted
	close()
}

func readCounter(c counter) (now reading, err error) {
	if now.Value, err = c.load(); err != nil {
		return now, err
	}
	now.Increments, err = c.increments()
	return now, err
}

// fileCounter keeps the value as digits in one file. The size of another file is
// the number of increments.
type fileCounter struct{ value, made *os.File }

// valueWidth is the number of digits of each value. All values have the same
// number of digits, so one write of a value replaces the last value.
const valueWidth = 20

func openCounter(name string) (_ counter, err error) {
	c := new(fileCounter)
	if c.value, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644); err == nil {
		_, err = c.load()
	}
	if err == nil {
		c.made, err = os.OpenFile(name+".increments", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	}
	if err != nil {
		c.close() // closing no file is a no-op
		return nil, fmt.Errorf("-counter: %w", err)
	}
	return c, nil
}

// load returns zero for an empty file, so that no process has to initialise it.
func (c *fileCounter) load() (int64, error) {
	digits := make([]byte, valueWidth+2)
	n, err := c.value.ReadAt(digits, 0)
	if err != nil && err != io.EOF {
		return 0, err
	}
	text := strings.TrimSuffix(string(digits[:n]), "\n")
	if text == "" {
		return 0, nil
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < 0 {
		return 0, fmt.Errorf("%s does not hold a counter", c.value.Name())
	}
	return value, nil
}

func (c *fileCounter) store(n int64) error {
	_, err := c.value.WriteAt(fmt.Appendf(nil, "%0*d\n", valueWidth, n), 0)
	return err
}

func (c *fileCounter) countIncrement() error {
	_, err := c.made.Write([]byte{'.'}) // the file was opened to append, which loses no write
	return err
}

func (c *fileCounter) increments() (int64, error) {
	info, err := c.made.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (c *fileCounter) close() {
	c.value.Close()
	c.made.Close()
}

// incrementsPerHold is how often a writer increments the counter in one hold.
const incrementsPerHold = 10

// use makes incrementsPerHold steps: it pauses, and a writer then writes what it
// read before the pause, plus one. So the writer overwrites what another worker
// has written during the pause, and the counter shows that. use stops early if the
// lock is lost or ctx ends.
func (w *worker) use(ctx context.Context, t *attempt, h held) {
	value, ok := w.read(t, h)
	for range incrementsPerHold {
		if !ok {
			return
		}
		finished := pause(ctx, w.hold/incrementsPerHold, h.Lost())
		if !w.stillHeld(t, h, w.log.now()) {
			return
		}
		if !finished {
			t.Outcome = interrupted
			return
		}
		if t.Mode == dlock.Exclusive {
			value++
			if err := errors.Join(w.counter.store(value), w.counter.countIncrement()); err != nil {
				w.stop(t, failed, err)
				return
			}
			t.Increments++
		}
		expected := value
		if value, ok = w.read(t, h); ok && value != expected {
			t.noteAnomaly("%s found %d where it had left %d", t.label(), value, expected)
		}
	}
}

// read returns the counter's value, or false if it cannot be read or the lock is
// lost. While the lock is held, the value and the number of increments are equal.
func (w *worker) read(t *attempt, h held) (value int64, ok bool) {
	now, err := readCounter(w.counter)
	if err != nil {
		w.stop(t, failed, err)
		return 0, false
	}
	if !w.stillHeld(t, h, w.log.now()) {
		return 0, false // another worker may have changed the counter
	}
	t.Last = now
	if now.Value != now.Increments {
		t.noteAnomaly("%s found %d after %d increments", t.label(), now.Value, now.Increments)
	}
	return now.Value, true
}

// noteAnomaly records the first anomaly. Later ones follow from it.
func (t *attempt) noteAnomaly(format string, args ...any) {
	if t.Anomaly == "" {
		t.Anomaly = fmt.Sprintf(format, args...)
	}
}
