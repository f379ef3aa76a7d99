package dlocktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The methods below make driver calls that must succeed. As locks do, they
// retry while the store is unavailable.

const retryPause = 5 * time.Millisecond

// retry calls call until the store is available. An error other than
// ErrUnavailable fails the case.
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

// together runs f in n goroutines that start at the same time, and waits for
// them. If the case has failed, it then exits the calling goroutine.
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

// pauseBriefly slows down a loop of requests, which might otherwise starve
// heartbeats.
func pauseBriefly() { time.Sleep(20 * time.Microsecond) }

// holdBriefly delays a holder so that other contenders arrive meanwhile.
func holdBriefly() { time.Sleep(rand.N(200 * time.Microsecond)) }

func (c *check) session() driver.Session { return c.sessionOf(c.connector()) }

func (c *check) sessionOf(store driver.Connector) driver.Session {
	c.exitIfAbandoned()
	var s driver.Session
	c.retry("Connect", func() (err error) {
		s, err = store.Connect(c.ctx)
		return err
	})
	if s == nil {
		c.fatalf("Connect returned neither a session nor an error")
	}
	c.closeLater(s)
	return s
}

func (c *check) twoSessions() (a, b driver.Session) { return c.session(), c.session() }

func (c *check) close(s driver.Session) {
	c.expectEnd(s)
	if err := s.Close(); err != nil {
		c.fatalf("Close returned the error %q, expected success while the store can be reached", err)
	}
}

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

// join creates a node and returns all that Create returns. With a predecessor
// function, the driver may also arm a watch.
func (c *check) join(s driver.Session, queue, prefix string, predecessor func([]driver.Node) int) (j driver.Joined) {
	c.retry(fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (err error) {
		j, err = tryJoin(c.ctx, s, queue, prefix, predecessor)
		return err
	})
	return j
}

func (c *check) create(s driver.Session, queue, prefix string) driver.Place {
	j := c.join(s, queue, prefix, nil)
	j.Watch.Stop()
	return j.Place
}

func (c *check) createWithData(s driver.Session, queue, prefix string) (p driver.Place, text string) {
	c.retry(fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (err error) {
		d := data()
		text = string(d)
		j, err := s.Create(c.ctx, queue, driver.NodeSpec{Prefix: prefix, Data: d})
		p = j.Place
		clear(d)
		return err
	})
	return p, text
}

// createMany creates 2n nodes from each of three sessions concurrently and
// returns their places, sorted by token.
func createMany(c *check, queue string, n int) []driver.Place {
	var sessions [3]driver.Session
	for i := range sessions {
		sessions[i] = c.session()
	}
	var mu sync.Mutex
	var all []driver.Place
	c.together(2*len(sessions), func(i int) {
		for range n {
			p := c.create(sessions[i%3], queue, fmt.Sprintf("h%d-W-", i))
			mu.Lock()
			all = append(all, p)
			mu.Unlock()
		}
	})
	slices.SortFunc(all, byToken)
	return all
}

func aroundUnsequenced(c *check, s driver.Session) (driver.Place, driver.Joined) {
	p := c.create(s, "q", writer)
	// A driver may count any name that ends in ten digits as a contender, so
	// these names do not.
	for _, name := range []string{"readme", "web1-W-", "web1-W-123456789", "web1-W", "web1-W-0000000007x"} {
		c.putNode("q", name, "not a lock's")
	}
	return p, c.join(s, "q", reader, nil)
}

func (c *check) list(s driver.Session, queue string) (nodes []driver.Node) {
	c.retry(fmt.Sprintf("List(%q)", queue), func() (err error) {
		nodes, err = s.List(c.ctx, queue)
		return err
	})
	return nodes
}

// listAfterWrite returns the current state of a queue. A server that lags may
// answer List with old state, but must include the session's own latest write,
// so listAfterWrite creates and deletes a node as well.
func (c *check) listAfterWrite(s driver.Session, queue string) []driver.Node {
	p := c.create(s, queue, "probe-R-")
	nodes := c.list(s, queue)
	c.delete(s, queue, p)
	return without(nodes, p.Node)
}

func (c *check) read(s driver.Session, queue, name string) (info driver.NodeInfo) {
	c.retry(fmt.Sprintf("Read(%q, %q)", queue, name), func() (err error) {
		info, err = driver.Inspect(s).Read(c.ctx, queue, name)
		return err
	})
	return info
}

func (c *check) replace(s driver.Session, queue string, p driver.Place, prefix string) (now driver.Place) {
	c.retry(fmt.Sprintf("Replace(%q, %q, %q)", queue, p.Name, prefix), func() (err error) {
		now, err = s.Replace(c.ctx, queue, p, prefix)
		return err
	})
	return now
}

func (c *check) delete(s driver.Session, queue string, p driver.Place) {
	c.remove(s, queue, p, driver.Changed)
}

func (c *check) release(s driver.Session, queue string, p driver.Place) {
	c.remove(s, queue, p, driver.Released)
}

// remove deletes a node, retrying while the store is unavailable. ErrGone is an
// error only if no earlier attempt can have deleted the node.
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
