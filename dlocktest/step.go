package dlocktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The methods below make driver calls that must succeed. As locks do, they
// retry while the store is unavailable.

const retryPause = 5 * time.Millisecond

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

func ask[T any](c *check, what string, call func() (T, error)) (result T) {
	c.retry(what, func() (err error) {
		result, err = call()
		return err
	})
	return result
}

func (c *check) eventually(look func() (found any, satisfied bool), what string, args ...any) any {
	wait := c.startWait()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		c.exitIfAbandoned()
		found, satisfied := look()
		if satisfied {
			return found
		}
		select {
		case <-time.After(pause):
		case <-wait.over:
			c.fatalf("not seen within %v, and expected in the end: %s; the last look found %v", wait.elapsed(), fmt.Sprintf(what, args...), found)
		}
	}
}

func await[T any](c *check, ch <-chan T, late string, args ...any) (value T, open bool) {
	wait := c.startWait()
	select {
	case value, open = <-ch:
	case <-wait.over:
		c.fatalf("%s, after a wait of %v", fmt.Sprintf(late, args...), wait.elapsed())
	}
	return value, open
}

// together runs f in n goroutines at once and waits for them. If the case has
// failed, together exits the caller's goroutine.
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

func (c *check) atOnce(all ...func()) { c.together(len(all), func(i int) { all[i]() }) }

func (c *check) during(work func(), looks ...func()) {
	var over atomic.Bool
	c.together(len(looks)+1, func(i int) {
		if i == len(looks) {
			defer over.Store(true)
			work()
			return
		}
		for !over.Load() {
			looks[i]()
			pauseBriefly()
		}
		looks[i]()
	})
}

// pauseBriefly slows down a loop of requests, which might otherwise starve
// heartbeats.
func pauseBriefly() { time.Sleep(20 * time.Microsecond) }

// holdBriefly delays a holder so that other contenders arrive meanwhile.
func holdBriefly() { time.Sleep(rand.N(200 * time.Microsecond)) }

func (c *check) session() session { return c.sessionOf(c.connector()) }

func (c *check) sessionOf(store driver.Connector) session {
	c.exitIfAbandoned()
	s := ask(c, "Connect", func() (session, error) { return store.Connect(c.ctx) })
	if s == nil {
		c.fatalf("Connect returned neither a session nor an error")
	}
	c.closeLater(s)
	return s
}

func (c *check) sessions(n int) (all []session) {
	for range n {
		all = append(all, c.session())
	}
	return all
}

func (c *check) close(s session) {
	c.expectEnd(s)
	if err := s.Close(); err != nil {
		c.fatalf("Close returned the error %q, expected success while the store can be reached", err)
	}
}

func (c *check) awaitSessionEnd(s session, after string) {
	c.expectEnd(s)
	await(c, s.Done(), "Done is still open after %s, expected it to close", after)
	c.wantEnded("Err", s.Err())
}

// join creates a node. With a predecessor function, the driver may arm a watch.
func (c *check) join(s session, queue, prefix string, predecessor func([]driver.Node) int) driver.Joined {
	return ask(c, fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (driver.Joined, error) {
		return tryJoin(c.ctx, s, queue, prefix, predecessor)
	})
}

func (c *check) create(s session, queue, prefix string) driver.Place {
	j := c.join(s, queue, prefix, nil)
	j.Watch.Stop()
	return j.Place
}

func (c *check) createWithData(s session, queue, prefix string) (p driver.Place, text string) {
	p = ask(c, fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (driver.Place, error) {
		d := data()
		defer clear(d)
		text = string(d)
		j, err := s.Create(c.ctx, queue, driver.NodeSpec{Prefix: prefix, Data: d})
		return j.Place, err
	})
	return p, text
}

// createMany creates 2n nodes from each of three sessions concurrently and
// returns their places, sorted by token.
func createMany(c *check, n int) (all []driver.Place) {
	sessions := c.sessions(3)
	var mu sync.Mutex
	c.together(2*len(sessions), func(i int) {
		for range n {
			p := c.create(sessions[i%3], "q", fmt.Sprintf("h%d-W-", i))
			mu.Lock()
			all = append(all, p)
			mu.Unlock()
		}
	})
	slices.SortFunc(all, byToken)
	return all
}

func aroundUnsequenced(c *check, s session) (driver.Place, driver.Joined) {
	p := c.create(s, "q", writer)
	// A driver may list any name that ends in ten digits. None of these does.
	for _, name := range []string{"readme", "web1-W-", "web1-W-123456789", "web1-W", "web1-W-0000000007x"} {
		c.putNode("q", name, "not a lock's")
	}
	return p, c.join(s, "q", reader, nil)
}

func (c *check) list(s session, queue string) []driver.Node {
	return ask(c, fmt.Sprintf("List(%q)", queue), func() ([]driver.Node, error) { return s.List(c.ctx, queue) })
}

// listAfterWrite creates and deletes a node, because a server that lags may
// return an old list, but must include the session's own latest write.
func (c *check) listAfterWrite(s session, queue string) []driver.Node {
	p := c.create(s, queue, "probe-R-")
	nodes := c.list(s, queue)
	c.delete(s, queue, p)
	return without(nodes, p.Node)
}

func (c *check) read(s session, queue, name string) driver.NodeInfo {
	return ask(c, fmt.Sprintf("Read(%q, %q)", queue, name), func() (driver.NodeInfo, error) {
		return driver.Inspect(s).Read(c.ctx, queue, name)
	})
}

func (c *check) walk(s session, prefix string) []string {
	return ask(c, fmt.Sprintf("Walk(%q)", prefix), func() ([]string, error) { return driver.Inspect(s).Walk(c.ctx, prefix) })
}

func (c *check) replace(s session, queue string, p driver.Place, prefix string) driver.Place {
	return ask(c, fmt.Sprintf("Replace(%q, %q, %q)", queue, p.Name, prefix), func() (driver.Place, error) {
		return s.Replace(c.ctx, queue, p, prefix)
	})
}

func (c *check) delete(s session, queue string, p driver.Place) {
	c.remove(s, queue, p, driver.Changed)
}

func (c *check) release(s session, queue string, p driver.Place) {
	c.remove(s, queue, p, driver.Released)
}

func (c *check) remove(s session, queue string, p driver.Place, why driver.Cause) {
	c.retryRemoval(fmt.Sprintf("Delete(%q, %q, %v)", queue, p.Name, why), func() error { return s.Delete(c.ctx, queue, p, why) })
}

// retryRemoval removes a node, retrying while the store is unavailable. ErrGone
// in a retry counts as success: an earlier try may have removed the node.
func (c *check) retryRemoval(what string, call func() error) {
	doubt := false
	c.retry(what, func() error {
		err := call()
		if doubt && errors.Is(err, driver.ErrGone) {
			return nil
		}
		doubt = true
		return err
	})
}
