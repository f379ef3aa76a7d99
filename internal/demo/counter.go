package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
)

// counter is a number that writers bump with a load and a store, so that bumps get lost where two of them meet. The tally counts the bumps
// in a way that loses none, whoever meets. Under the lock both are equal.
//
// Each method is atomic; nothing but the lock makes one thing of several calls.
type counter interface {
	load() (int64, error)
	store(n int64) error
	countIncrement() error // adds one to the tally
	increments() (int64, error)
	close()
}

// openCounter returns a counter in that file, or in memory if there is no name.
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

// fileCounter keeps the value as digits in one file and the tally as the size of another one.
type fileCounter struct{ value, made *os.File }

// valueWidth is the same for all values, so that a store replaces the one before in one write.
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

// load takes an empty file for zero, so that none of several processes has to be the first.
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
	_, err := c.made.Write([]byte{'.'}) // an append
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
