package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
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

// openCounter returns a counter in the file, or in memory if the name is empty.
func openCounter(file string) (counter, error) {
	if file == "" {
		return new(memoryCounter), nil
	}
	return openFileCounter(file)
}

type memoryCounter struct{ value, made atomic.Int64 }

func (c *memoryCounter) load() (int64, error)       { return c.value.Load(), nil }
func (c *memoryCounter) store(n int64) error        { c.value.Store(n); return nil }
func (c *memoryCounter) countIncrement() error      { c.made.Add(1); return nil }
func (c *memoryCounter) increments() (int64, error) { return c.made.Load(), nil }
func (c *memoryCounter) close()                     {}

// fileCounter keeps the value as digits in one file. The size of another file is
// the number of increments.
type fileCounter struct{ value, made *os.File }

// valueWidth is the number of digits of each value. All values have the same
// number of digits, so one write of a value replaces the last value.
const valueWidth = 20

func openFileCounter(name string) (*fileCounter, error) {
	value, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("-counter: %w", err)
	}
	c := &fileCounter{value: value}
	if _, err := c.load(); err != nil {
		value.Close()
		return nil, fmt.Errorf("-counter: %w", err)
	}
	c.made, err = os.OpenFile(name+".increments", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		value.Close()
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
