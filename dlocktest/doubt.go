package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// mayFail reports whether a call failed. The error must say that the store is
// unavailable, or that ctx or the session has ended.
func (c *check) mayFail(what string, s session, ctx context.Context, err error) (failed bool) {
	switch {
	case err == nil:
		return false
	case ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		c.errorf("%s returned %q, which matches an error of package context although its ctx has not ended: it would look like the caller's own deadline (rule 10)",
			what, err)
	case errors.Is(err, driver.ErrUnavailable):
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case errors.Is(err, driver.ErrSessionEnded) && s.Err() != nil:
	default:
		c.errorf("%s returned %q, expected success, an error that matches ErrUnavailable, the error of its ctx, or the end of the session (rule 10)",
			what, err)
	}
	return true
}

func (c *check) endedWithConnection(s session) bool {
	err := s.Err()
	if err != nil {
		c.logf("the session ended with its connection: %v", err)
	}
	return err != nil
}

func createFailed(c *check, s session, ctx context.Context, err error) bool {
	return c.mayFail("Create whose outcome is unknown", s, ctx, err)
}

// createUnlessEnded creates a node after a connection broke. It returns false
// if the session ended with the connection, which is allowed.
func createUnlessEnded(c *check, s session, queue, prefix string) (p driver.Place, ok bool) {
	c.retry(fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (err error) {
		p, err = tryCreate(c.ctx, s, queue, prefix)
		if ok = err == nil; errors.Is(err, driver.ErrSessionEnded) && c.endedWithConnection(s) {
			return nil
		}
		return err
	})
	return p, ok
}

func inDoubtDelete(c *check, s session, ctx context.Context, err error) {
	c.mayFail("Delete whose outcome is unknown (ErrGone would tell its caller that the lock was lost)", s, ctx, err)
}

func repeatDelete(c *check, s session, queue string, p driver.Place, why driver.Cause) {
	c.eventually(func() (any, bool) {
		err := s.Delete(c.ctx, queue, p, why)
		passes := errors.Is(err, driver.ErrUnavailable)
		if err != nil && !passes && !errors.Is(err, driver.ErrGone) && !(errors.Is(err, driver.ErrSessionEnded) && s.Err() != nil) {
			c.fatalf("a repeated Delete returned %q, expected success, ErrGone or ErrUnavailable", err)
		}
		return err, !passes
	}, "a repeated Delete returns success or ErrGone")
}

func eventuallyHolds(c *check, s session, queue, after string, want ...driver.Node) {
	eventuallyHoldsOr(c, s, queue, after, want, nil, nil)
}

// eventuallyHoldsOr waits until the queue holds exactly want, or exactly rest
// if the session mayEnd has ended. mayEnd may be nil.
func eventuallyHoldsOr(c *check, s session, queue, after string, want []driver.Node, mayEnd session, rest []driver.Node) {
	c.eventually(func() (any, bool) {
		ended := mayEnd != nil && mayEnd.Err() != nil
		nodes := c.list(s, queue)
		return nodes, slices.Equal(nodes, want) || ended && slices.Equal(nodes, rest)
	}, "no node is left of %s, and all other nodes are there: List returns %v", after, want)
}

func (c *check) goneWithQueue(s session, places ...driver.Place) {
	var watches []driver.Watch
	for _, p := range places {
		watches = append(watches, c.watch(s, "q", p))
	}
	c.removeQueue("q")
	wantUnreleasedEnds(c, watches, "removal of the queue")
	eventuallyHolds(c, s, "q", "the queue that was removed")
}

// createNamesakes creates a node in each session. If the store reuses names,
// one of the nodes gets the old node's name.
func createNamesakes(c *check, own, other session, queue string, old driver.Node) (nodes []driver.Node) {
	nodes = append(nodes, c.create(other, queue, writer).Node, c.create(own, queue, writer).Node)
	again := slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == old.Name })
	c.logf("the name %s came again: %v", old.Name, again)
	return nodes
}

func createTime(c *check, s session) time.Duration {
	const n = 10
	begin := time.Now()
	for range n {
		c.delete(s, "measure", c.create(s, "measure", writer))
	}
	return time.Since(begin) / (2 * n)
}

// soonEnded returns a context that ends shortly before, during or after a call
// of the given usual duration. How it ends depends on i.
func soonEnded(parent context.Context, i int, usual time.Duration) (context.Context, context.CancelFunc) {
	after := rand.N(2*usual + 1)
	if i%4 == 0 {
		return context.WithTimeout(parent, after)
	}
	ctx, cancel := context.WithCancel(parent)
	switch i % 4 {
	case 1:
		time.AfterFunc(after, cancel)
	case 2:
		go cancel()
	case 3:
		cancel()
	}
	return ctx, cancel
}

func (c *check) shortly() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.ctx, c.config.sessionTimeout()/8)
}

// wantGivenUp is like mayFail for a call whose ctx has ended, but also allows
// ErrGone.
func (c *check) wantGivenUp(what string, s session, ctx context.Context, err error) {
	if !errors.Is(err, driver.ErrGone) {
		c.mayFail(what, s, ctx, err)
	}
}

// lateCalls starts every kind of call, then calls end. It returns the names of
// the calls still running after grace.
func lateCalls(c *check, ctx context.Context, s session, p driver.Place, grace time.Duration, end func()) map[string]bool {
	late := make(map[string]bool)
	all := c.calls(ctx, s, "q", p)
	returned := make(chan string, len(all))
	for name, call := range all {
		late[name] = true
		go func() {
			c.wantGivenUp(name+" while cut off", s, ctx, call())
			returned <- name
		}()
	}
	end()
	over := time.After(grace)
	for len(late) > 0 {
		select {
		case name := <-returned:
			delete(late, name)
		case <-over:
			return late
		}
	}
	return nil
}

// inEveryTry returns the names that find returns in each of four tries, because
// a correct driver may be late sometimes on a slow machine.
func inEveryTry(find func() map[string]bool) map[string]bool {
	found := find()
	for try := 1; try < 4 && len(found) > 0; try++ {
		again := find()
		maps.DeleteFunc(found, func(name string, _ bool) bool { return !again[name] })
	}
	return found
}
