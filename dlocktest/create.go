package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const whyOrphan = "a node that nobody knows of blocks the lock for everybody until its session ends"

var createCases = []testCase{
	{name: "a-create-whose-ctx-had-ended-leaves-nothing", why: whyOrphan, run: createAfterCancel},
	{name: "a-create-cancelled-at-any-time-leaves-nothing", why: whyOrphan, run: createCancelledAnyTime},
	{name: "a-reply-lost-before-the-commit-leaves-nothing", why: whyOrphan, needs: needLoseReply,
		run: func(c *check) { createLosesReply(c, false) }},
	{name: "a-reply-lost-after-the-commit-leaves-nothing", why: whyOrphan, needs: needLoseReply,
		run: func(c *check) { createLosesReply(c, true) }},
	{name: "a-clean-up-takes-no-other-node", why: "the clean-up of one contender would take the lock away from another one of the same host",
		needs: needLoseReply, run: cleanUpSparesOthers},
	{name: "a-create-given-up-while-cut-off-leaves-nothing", why: whyOrphan, needs: needCutOff, run: createCutOff},
}

// failedCreate judges the error of a Create that may have failed and tells
// whether it did.
func failedCreate(c *check, s driver.Session, ctx context.Context, err error) bool {
	switch {
	case err == nil:
		return false
	case ctx.Err() != nil && errors.Is(err, ctx.Err()), errors.Is(err, driver.ErrUnavailable):
	case errors.Is(err, driver.ErrSessionEnded) && s.Err() != nil:
	default:
		c.errorf("Create whose outcome was in doubt returned %q, expected the error of its ctx, ErrUnavailable or the end of the session (rule 10)", err)
	}
	return true
}

// vanish waits until the queue holds exactly want.
func vanish(c *check, s driver.Session, queue, after string, want ...driver.Node) {
	vanishOr(c, s, queue, after, want, nil, nil)
}

// vanishOr waits until the queue holds exactly want, or, once the session that may end has ended,
// exactly rest.
func vanishOr(c *check, s driver.Session, queue, after string, want []driver.Node, mayEnd driver.Session, rest []driver.Node) {
	var nodes []driver.Node
	ok := false
	defer func() {
		if !ok {
			c.errorf("the last List returned %v, expected %v", nodes, want)
		}
	}()
	c.eventually(func() bool {
		ended := mayEnd != nil && mayEnd.Err() != nil
		nodes = c.list(s, queue)
		return slices.Equal(nodes, want) || ended && slices.Equal(nodes, rest)
	}, "no node of %s stays, and all others do", after)
	ok = true
}

// createUnlessEnded is create in a session that may have ended with its connection.
func createUnlessEnded(c *check, s driver.Session, queue, prefix string) (p driver.Place, ok bool) {
	c.retry(fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (err error) {
		p, err = s.Create(c.ctx, queue, prefix, data())
		if ok = err == nil; errors.Is(err, driver.ErrSessionEnded) && s.Err() != nil {
			c.logf("the session ended with its connection: %v", err)
			return nil
		}
		return err
	})
	return p, ok
}

func createAfterCancel(c *check) {
	a, b := c.twoSessions()
	stays := c.create(b, "q", writer)
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	want := []driver.Node{stays.Node}
	for range 20 {
		p, err := a.Create(ctx, "q", writer, data())
		if !failedCreate(c, a, ctx, err) {
			want = append(want, p.Node)
		}
	}
	vanish(c, b, "q", "a Create that returned an error", want...)
	c.wantAlive(a, "a Create whose ctx had ended")
	c.create(a, "q", writer)
}

func createCancelledAnyTime(c *check) {
	a, b := c.twoSessions()
	stays := c.create(b, "q", writer)
	usual := usualCreate(c, a)
	want := []driver.Node{stays.Node}
	failures := 0
	for i := range 200 {
		c.alive()
		ctx, cancel := soonEnded(c.ctx, i, usual)
		p, err := a.Create(ctx, "q", fmt.Sprintf("try%d-W-", i), data())
		if failedCreate(c, a, ctx, err) {
			failures++
		} else if i%10 == 9 {
			want = append(want, p.Node)
		} else {
			c.delete(a, "q", p)
		}
		cancel()
	}
	c.logf("%d of 200 creates were cancelled in time (a create takes %v)", failures, usual)
	vanish(c, b, "q", "a Create that returned an error", want...)
	c.wantAlive(a, "calls whose ctx ended")
	last := c.create(a, "q", writer)
	vanish(c, b, "q", "a Create that returned an error", append(want, last.Node)...)
}

// soonEnded returns a context that ends at about the time that a call takes: by
// deadline, or cancelled after a while, or cancelled by a goroutine that meets the call.
func soonEnded(parent context.Context, i int, usual time.Duration) (context.Context, context.CancelFunc) {
	after := rand.N(2*usual + 1)
	if i%3 == 0 {
		return context.WithTimeout(parent, after)
	}
	ctx, cancel := context.WithCancel(parent)
	if i%3 == 1 {
		time.AfterFunc(after, cancel)
	} else {
		go cancel()
	}
	return ctx, cancel
}

// usualCreate measures how long a Create takes.
func usualCreate(c *check, s driver.Session) time.Duration {
	const n = 10
	begin := time.Now()
	for range n {
		c.delete(s, "measure", c.create(s, "measure", writer))
	}
	return time.Since(begin) / (2 * n)
}

func createLosesReply(c *check, committed bool) {
	a, b := c.twoSessions()
	before := c.create(a, "q", writer)
	theirs := c.create(b, "q", writer)
	c.loseReply(a, OpCreate, committed)
	p, err := a.Create(c.ctx, "q", writer, data())
	want := []driver.Node{before.Node, theirs.Node}
	if !failedCreate(c, a, c.ctx, err) {
		want = append(want, p.Node)
	}
	rest := []driver.Node{theirs.Node}
	vanishOr(c, b, "q", "a Create whose reply was lost", want, a, rest)
	if last, ok := createUnlessEnded(c, a, "q", writer); ok {
		want = append(want, last.Node)
	}
	vanishOr(c, b, "q", "a Create whose reply was lost", want, a, rest)
}

// cleanUpSparesOthers makes the failed node one of many of the same prefix.
func cleanUpSparesOthers(c *check) {
	a, b := c.twoSessions()
	rest := []driver.Node{c.create(b, "q", writer).Node}
	want := slices.Clone(rest)
	for i := range 6 {
		c.loseReply(a, OpCreate, i%2 == 0)
		p, err := a.Create(c.ctx, "q", writer, data())
		if !failedCreate(c, a, c.ctx, err) {
			want = append(want, p.Node)
		}
		if mine, ok := createUnlessEnded(c, a, "q", writer); ok {
			want = append(want, mine.Node)
		}
		theirs := c.create(b, "q", writer).Node
		want, rest = append(want, theirs), append(rest, theirs)
	}
	vanishOr(c, b, "q", "a Create whose reply was lost", want, a, rest)
}

// createCutOff gives up creates that are on their way, and looks for them after they had the chance to arrive.
func createCutOff(c *check) {
	a, b := c.twoSessions()
	theirs := c.create(b, "q", writer)
	want, rest := []driver.Node{theirs.Node}, []driver.Node{theirs.Node}
	heal := c.cutOff(a)
	for range 3 {
		ctx, cancel := context.WithTimeout(c.ctx, 20*time.Millisecond)
		p, err := a.Create(ctx, "q", writer, data())
		if !failedCreate(c, a, ctx, err) {
			want = append(want, p.Node)
		}
		cancel()
	}
	heal()
	if last, ok := createUnlessEnded(c, a, "q", writer); ok {
		want = append(want, last.Node)
	}
	vanishOr(c, b, "q", "a Create that was given up", want, a, rest)
}
