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

// The prefixes of two contenders, in the form that locks use.
const (
	writer = "web1-W-"
	reader = "web2-R-"
)

// The functions below make calls of the driver that have to succeed. If a call
// fails with an error that may pass, they repeat it, as locks do.

const retryPause = 5 * time.Millisecond

// retry repeats the function call as long as its error matches ErrUnavailable,
// and fails the case on any other error.
func (c *check) retry(what string, call func() error) {
	wait := c.startWait()
	for {
		c.exitIfAbandoned()
		err := call()
		switch {
		case err == nil:
			return
		case !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded):
			c.fatalf("%s returned the error %q, expected success", what, err)
		}
		select {
		case <-time.After(retryPause):
		case <-wait.over:
			c.fatalf("%s failed for %v, at last with %q, expected success in the end", what, wait.elapsed(), err)
		}
	}
}

// data returns the data for a node. Like the data that locks store, it
// differs in every call.
func data() []byte { return []byte(`{"id":"` + rand.Text() + `"}`) }

// join creates a node and returns the result of Create. If predecessor is not
// nil, the driver may arm a watch.
func (c *check) join(s driver.Session, queue, prefix string, predecessor func([]driver.Node) int) (j driver.Joined) {
	c.retry(fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (err error) {
		j, err = s.Create(c.ctx, queue, driver.NodeSpec{Prefix: prefix, Data: data(), Predecessor: predecessor})
		return err
	})
	return j
}

// create creates a node, and returns nothing but its place.
func (c *check) create(s driver.Session, queue, prefix string) driver.Place {
	j := c.join(s, queue, prefix, nil)
	j.Watch.Stop()
	return j.Place
}

// tryCreate calls Create once, and returns its error.
func tryCreate(ctx context.Context, s driver.Session, queue, prefix string) (driver.Place, error) {
	j, err := s.Create(ctx, queue, driver.NodeSpec{Prefix: prefix, Data: data()})
	return j.Place, err
}

func (c *check) list(s driver.Session, queue string) (nodes []driver.Node) {
	c.retry(fmt.Sprintf("List(%q)", queue), func() (err error) {
		nodes, err = s.List(c.ctx, queue)
		return err
	})
	return nodes
}

// listAfterWrite lists a queue as it is now. List alone may show the session an
// older state, since a server of the store may lag behind the others. After a
// write of its own the session sees everything that came before that write.
func (c *check) listAfterWrite(s driver.Session, queue string) []driver.Node {
	p := c.create(s, queue, "probe-R-")
	nodes := c.list(s, queue)
	c.delete(s, queue, p)
	return without(nodes, p.Node)
}

func (c *check) delete(s driver.Session, queue string, p driver.Place) {
	c.remove(s, queue, p, driver.Changed)
}

// release deletes a node as the holder of an exclusive lock does in Unlock.
func (c *check) release(s driver.Session, queue string, p driver.Place) {
	c.remove(s, queue, p, driver.Released)
}

// remove deletes a node. If the outcome of a call is unknown, remove repeats
// it, and the node may be gone by then.
func (c *check) remove(s driver.Session, queue string, p driver.Place, why driver.Cause) {
	doubt := false
	c.retry(fmt.Sprintf("Delete(%q, %q, %v)", queue, p.Name, why), func() error {
		err := s.Delete(c.ctx, queue, p, why)
		if doubt && errors.Is(err, driver.ErrGone) {
			return nil
		}
		doubt = true
		return err
	})
}

// watch watches a node of the session, and nodes ahead of it.
func (c *check) watch(s driver.Session, queue string, p driver.Place, ahead ...driver.Node) (w driver.Watch) {
	what := fmt.Sprintf("Watch(%q, %q)", queue, p.Name)
	c.retry(what, func() (err error) {
		w, err = s.Watch(c.ctx, queue, p, ahead...)
		return err
	})
	c.wantChannel(what, w)
	return w
}

func (c *check) watchQueue(s driver.Session, queue string) (w driver.Watch) {
	what := fmt.Sprintf("WatchQueue(%q)", queue)
	c.retry(what, func() (err error) {
		w, err = s.WatchQueue(c.ctx, queue)
		return err
	})
	c.wantChannel(what, w)
	return w
}

func (c *check) wantChannel(what string, w driver.Watch) {
	if w.C == nil {
		c.fatalf("%s returned neither a channel nor an error", what)
	}
}

// waitFor creates a node of s at the end of the queue, and watches that node and
// nodes ahead of it.
func (c *check) waitFor(s driver.Session, queue string, ahead ...driver.Node) (driver.Place, driver.Watch) {
	p := c.create(s, queue, "wait-R-")
	return p, c.watch(s, queue, p, ahead...)
}

// awaitEnd waits for the end of a watch, and reports whether the watch sent
// Released before that.
func (c *check) awaitEnd(w driver.Watch, after string, args ...any) (released bool) {
	wait := c.startWait()
	for {
		select {
		case cause, open := <-w.C:
			if !open {
				return released
			}
			if c.isReleased(cause) {
				if released {
					c.errorf("the watch sent Released twice, expected it at most once (rule 13)")
				}
				released = true
			}
		case <-wait.over:
			c.fatalf("the watch was still open %v after %s, expected it to close", wait.elapsed(), fmt.Sprintf(after, args...))
		}
	}
}

// isReleased reports whether a value that a watch has sent is Released.
func (c *check) isReleased(cause driver.Cause) bool {
	if cause != driver.Released && cause != driver.Changed {
		c.fatalf("the watch sent the unknown Cause %d", cause)
	}
	return cause == driver.Released
}

// awaitNews waits for the first value that a watch sends, or for its end. It
// reports whether the watch has sent Released.
func (c *check) awaitNews(w driver.Watch, after string, args ...any) (released bool) {
	wait := c.startWait()
	select {
	case cause, open := <-w.C:
		return open && c.isReleased(cause)
	case <-wait.over:
		c.fatalf("the watch was still open %v after %s and had sent nothing, expected Released or its end", wait.elapsed(), fmt.Sprintf(after, args...))
	}
	return false
}

// wantUnreleasedEnd waits for the end of a watch that must not send Released.
func (c *check) wantUnreleasedEnd(w driver.Watch, after string, args ...any) {
	if c.awaitEnd(w, after, args...) {
		c.errorf("the watch sent Released after %s, expected its end alone: Released is for the release of a node ahead only (rule 13)", fmt.Sprintf(after, args...))
	}
}

// wantEndedWatch expects that the watch w has ended. It is for watches of a
// node that is not in the queue: such a watch has to end before Watch returns.
func (c *check) wantEndedWatch(w driver.Watch, after string, args ...any) {
	if !hasNews(w.C) {
		c.fatalf("Watch returned an open watch after %s, expected one that has ended", fmt.Sprintf(after, args...))
	}
	c.wantUnreleasedEnd(w, after, args...)
}

func hasNews(ch <-chan driver.Cause) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// awaitSessionEnd waits until Done of a session closes.
func (c *check) awaitSessionEnd(s driver.Session, after string) {
	c.expectEnd(s)
	wait := c.startWait()
	select {
	case <-s.Done():
	case <-wait.over:
		c.fatalf("Done was still open %v after %s, expected it to close", wait.elapsed(), after)
	}
	c.wantEnded("Err", s.Err())
}

func (c *check) close(s driver.Session) {
	c.expectEnd(s)
	if err := s.Close(); err != nil {
		c.fatalf("Close returned the error %q, expected success while the store can be reached", err)
	}
}

// eventually waits until the condition holds.
func (c *check) eventually(holds func() bool, what string, args ...any) {
	wait := c.startWait()
	for pause := time.Millisecond; !holds(); pause = min(2*pause, 20*time.Millisecond) {
		c.exitIfAbandoned()
		select {
		case <-time.After(pause):
		case <-wait.over:
			c.fatalf("not seen within %v, and expected in the end: %s", wait.elapsed(), fmt.Sprintf(what, args...))
		}
	}
}

// together calls f in n goroutines that start at the same time, waits for them,
// and ends the calling goroutine if the case has failed.
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
		now, err = driver.Replace(c.ctx, s, queue, p, prefix)
		return err
	})
	return now
}
