package dlocktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The prefixes that recipes use, of two contenders.
const (
	writer = "web1-W-"
	reader = "web2-R-"
)

// The steps below are calls of the driver that have to succeed. As recipes
// do, they repeat what failed with an error that may pass.

const retryPause = 5 * time.Millisecond

// retry repeats call while its error matches ErrUnavailable, and fails the case on any other.
func (c *check) retry(what string, call func() error) {
	for {
		c.alive()
		err := call()
		switch {
		case err == nil:
			return
		case !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded):
			c.fatalf("%s returned the error %q, expected success", what, err)
		}
		select {
		case <-time.After(retryPause):
		case <-c.patience.Done():
			c.fatalf("%s went on failing, at last with %q, expected success in the end", what, err)
		}
	}
}

// data returns what a recipe puts into a node: something that differs in every call.
func data() []byte { return []byte(`{"id":"` + rand.Text() + `"}`) }

func (c *check) create(s driver.Session, queue, prefix string) (p driver.Place) {
	c.retry(fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (err error) {
		p, err = s.Create(c.ctx, queue, prefix, data())
		return err
	})
	return p
}

func (c *check) list(s driver.Session, queue string) (nodes []driver.Node) {
	c.retry(fmt.Sprintf("List(%q)", queue), func() (err error) {
		nodes, err = s.List(c.ctx, queue)
		return err
	})
	return nodes
}

// settled is List as seen after everything that has happened until now: a
// write of the listing session comes before it, as a server may lag behind others in what it lets a session read.
func (c *check) settled(s driver.Session, queue string) []driver.Node {
	p := c.create(s, queue, "probe-R-")
	nodes := c.list(s, queue)
	c.delete(s, queue, p)
	return without(nodes, p.Node)
}

func (c *check) delete(s driver.Session, queue string, p driver.Place) {
	c.retry(fmt.Sprintf("Delete(%q, %q)", queue, p.Name), func() error {
		return c.goneIsFineAfterDoubt(func() error { return s.Delete(c.ctx, queue, p) })
	})
}

// goneIsFineAfterDoubt calls a Delete, and once more if its outcome is
// unknown; then the node may be gone already.
func (c *check) goneIsFineAfterDoubt(remove func() error) error {
	err := remove()
	for errors.Is(err, driver.ErrUnavailable) && c.patience.Err() == nil {
		c.alive()
		time.Sleep(retryPause)
		if err = remove(); errors.Is(err, driver.ErrGone) {
			return nil
		}
	}
	return err
}

func (c *check) watch(s driver.Session, queue, name string) <-chan driver.Cause {
	return c.watchUntil(c.ctx, s, queue, name)
}

func (c *check) watchUntil(ctx context.Context, s driver.Session, queue, name string) (w <-chan driver.Cause) {
	what := fmt.Sprintf("Watch(%q, %q)", queue, name)
	c.retry(what, func() (err error) {
		w, err = s.Watch(ctx, queue, name)
		return err
	})
	if w == nil {
		c.fatalf("%s returned neither a channel nor an error", what)
	}
	return w
}

func (c *check) watchPlace(s driver.Session, queue string, p driver.Place) (w <-chan driver.Cause) {
	what := fmt.Sprintf("WatchPlace(%q, %q)", queue, p.Name)
	c.retry(what, func() (err error) {
		w, err = s.(driver.Releaser).WatchPlace(c.ctx, queue, p)
		return err
	})
	if w == nil {
		c.fatalf("%s returned neither a channel nor an error", what)
	}
	return w
}

// closes waits for the watch to close and reports whether it sent Released.
func (c *check) closes(w <-chan driver.Cause, after string, args ...any) (released bool) {
	for {
		select {
		case cause, open := <-w:
			switch {
			case !open:
				return released
			case cause == driver.Released:
				released = true
			case cause != driver.Changed:
				c.fatalf("the watch sent the unknown Cause %d", cause)
			}
		case <-c.patience.Done():
			c.fatalf("the watch was still open after %v, expected it to close after %s",
				c.config.bound(), fmt.Sprintf(after, args...))
		}
	}
}

// closesUnreleased is closes for an end that is no Release.
func (c *check) closesUnreleased(w <-chan driver.Cause, after string, args ...any) {
	if c.closes(w, after, args...) {
		c.errorf("the watch sent Released after %s, expected that for a Release only (rule 13)", fmt.Sprintf(after, args...))
	}
}

// ends waits for the session to say that it has ended.
func (c *check) ends(s driver.Session, after string) {
	c.doom(s)
	select {
	case <-s.Done():
	case <-c.patience.Done():
		c.fatalf("Done was still open %v after %s, expected it to close", c.config.bound(), after)
	}
	c.wantEnded("Err", s.Err())
}

func (c *check) close(s driver.Session) {
	c.doom(s)
	if err := s.Close(); err != nil {
		c.fatalf("Close returned the error %q, expected success with a store in reach", err)
	}
}

// eventually waits until the condition holds.
func (c *check) eventually(holds func() bool, what string, args ...any) {
	for pause := time.Millisecond; !holds(); pause = min(2*pause, 20*time.Millisecond) {
		c.alive()
		select {
		case <-time.After(pause):
		case <-c.patience.Done():
			c.fatalf("expected in the end, and not seen within %v: %s", c.config.bound(), fmt.Sprintf(what, args...))
		}
	}
}

// together calls f in n goroutines that start at once, waits for them, and
// ends the case if one of them failed.
func (c *check) together(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
	if c.failed() {
		runtime.Goexit()
	}
}

func (c *check) replace(s driver.Session, queue string, p driver.Place, prefix string) (now driver.Place) {
	c.retry(fmt.Sprintf("Replace(%q, %q, %q)", queue, p.Name, prefix), func() (err error) {
		now, err = s.(driver.Replacer).Replace(c.ctx, queue, p, prefix)
		return err
	})
	return now
}

func (c *check) release(s driver.Session, queue string, p driver.Place) {
	c.retry(fmt.Sprintf("Release(%q, %q)", queue, p.Name), func() error {
		return c.goneIsFineAfterDoubt(func() error { return s.(driver.Releaser).Release(c.ctx, queue, p) })
	})
}
