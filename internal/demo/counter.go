package demo

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"github.com/dlock-go/dlock"
)

// counter shows whether the lock provides mutual exclusion. Two simultaneous
// writers lose an increment of its value, but its number of writes is always
// right. If a holder reads two different numbers, the lock has failed.
type counter interface {
	read() (value, writes int64, err error)
	write(value int64) error
	close()
}

// fileCounter keeps the value in one file. The number of writes is the size of
// another file, to which each write appends a byte.
type fileCounter struct{ value, writes *os.File }

func openCounter(name string) (_ counter, err error) {
	c := new(fileCounter)
	if c.value, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		c.writes, err = os.OpenFile(name+".writes", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	}
	if err != nil {
		c.close() // closing a nil file is a no-op
		return nil, err
	}
	return c, nil
}

func (c *fileCounter) read() (value, writes int64, err error) {
	var b [8]byte
	if _, err := c.value.ReadAt(b[:], 0); err != nil && err != io.EOF {
		return 0, 0, err
	}
	info, err := c.writes.Stat()
	if err != nil {
		return 0, 0, err
	}
	return int64(binary.BigEndian.Uint64(b[:])), info.Size(), nil
}

func (c *fileCounter) write(value int64) error {
	if _, err := c.value.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(value)), 0); err != nil {
		return err
	}
	_, err := c.writes.Write([]byte{'.'}) // unlike the value, an appended byte cannot be overwritten
	return err
}

func (c *fileCounter) close() {
	c.value.Close()
	c.writes.Close()
}

const incrementsPerHold = 10

// use increments the counter several times during a hold or, as a reader, only
// reads it. A writer pauses between reading and writing, so that two
// simultaneous writers are sure to lose an increment. use stops early if the
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
			if err := w.counter.write(value); err != nil {
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

// read reads the counter. It returns false if that fails or if the lock is
// lost.
func (w *worker) read(t *attempt, h held) (value int64, ok bool) {
	value, writes, err := w.counter.read()
	if err != nil {
		w.stop(t, failed, err)
		return 0, false
	}
	if !w.stillHeld(t, h, w.log.now()) {
		return 0, false // the lock was lost, so another worker may have changed the counter
	}
	if value != writes {
		t.noteAnomaly("%s found %d after %d increments", t.label(), value, writes)
	}
	return value, true
}

// noteAnomaly records that the lock did not exclude others. It keeps only the
// first anomaly, because later ones follow from it.
func (t *attempt) noteAnomaly(format string, args ...any) {
	if t.Anomaly == "" {
		t.Anomaly = fmt.Sprintf(format, args...)
	}
}
