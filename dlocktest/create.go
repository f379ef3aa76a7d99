package dlocktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
)

const whyOrphan = "a node that no contender knows of blocks the lock for all others until its session ends"

var createCases = []testCase{
	{name: "a-create-whose-ctx-had-ended-leaves-nothing", why: whyOrphan, run: createAfterCancel},
	{name: "a-create-cancelled-at-any-time-leaves-nothing", why: whyOrphan, run: createCancelledAnyTime},
	{name: "a-reply-lost-before-the-commit-leaves-nothing", why: whyOrphan, needs: needLoseRequest,
		run: func(c *check) { createLosesReply(c, false) }},
	{name: "a-reply-lost-after-the-commit-leaves-nothing", why: whyOrphan, needs: needLoseReply,
		run: func(c *check) { createLosesReply(c, true) }},
	{name: "a-create-whose-list-failed-leaves-its-place-or-nothing", why: whyOrphan, needs: needLosses, run: createLosesList},
	{name: "a-clean-up-takes-no-other-node", why: "the clean-up of one contender would take the lock away from another one of the same host",
		needs: needLosses, run: cleanUpSparesOthers},
	{name: "a-foreign-copy-is-not-taken-for-the-lost-node", why: "a contender would hold a node that is not its own, and that no session's end removes",
		needs: needLosses | needPutNode, run: createSparesCopy},
	{name: "a-create-given-up-while-cut-off-leaves-nothing", why: whyOrphan, needs: needCutOff, run: createCutOff},
	{name: "a-create-that-arrives-late-leaves-nothing", why: whyOrphan, needs: needHoldRequest, run: createLate},
	{name: "a-create-after-the-store-ended-the-session-leaves-nothing",
		why:   "a node that belongs to no session blocks the lock for ever",
		needs: needDrop, run: createAfterExpiry},
}

// failedCreate judges the error of a Create that may have failed and reports
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

// vanishOr waits until the queue holds exactly want, or, once the session that
// may end has ended, exactly rest.
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

// createUnlessEnded is create in a session that may have ended with its
// connection.
func createUnlessEnded(c *check, s driver.Session, queue, prefix string) (p driver.Place, ok bool) {
	c.retry(fmt.Sprintf("Create(%q, %q)", queue, prefix), func() (err error) {
		p, err = tryCreate(c.ctx, s, queue, prefix)
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
		p, err := tryCreate(ctx, a, "q", writer)
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
	c.rounds(200, func(i int) {
		ctx, cancel := soonEnded(c.ctx, i, usual)
		defer cancel()
		p, err := tryCreate(ctx, a, "q", fmt.Sprintf("try%d-W-", i))
		if failedCreate(c, a, ctx, err) {
			failures++
		} else if i%10 == 9 {
			want = append(want, p.Node)
		} else {
			c.delete(a, "q", p)
		}
	})
	c.logf("%d creates were cancelled in time (a create takes %v)", failures, usual)
	vanish(c, b, "q", "a Create that returned an error", want...)
	c.wantAlive(a, "calls whose ctx ended")
	last := c.create(a, "q", writer)
	vanish(c, b, "q", "a Create that returned an error", append(want, last.Node)...)
}

// soonEnded returns a context that ends at about the time that a call takes: by
// deadline, or cancelled after a while, or cancelled by a goroutine that meets
// the call.
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
	c.lose(a, faults.OpCreate, committed)
	p, err := tryCreate(c.ctx, a, "q", writer)
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

// createLosesList loses the list that a Create sends besides the request for its
// node. The connection may break before the reply for the node has come, so the
// Create may fail; but then no node stays. A driver that sends no such list meets
// the loss in its next List.
func createLosesList(c *check) {
	a, b := c.twoSessions()
	want := []driver.Node{c.create(b, "q", writer).Node}
	for i := range 6 {
		c.lose(a, faults.OpList, i%2 == 0)
		j, err := a.Create(c.ctx, "q", driver.NodeSpec{Prefix: writer, Data: data(), Predecessor: last})
		if !failedCreate(c, a, c.ctx, err) {
			c.wantAhead(j, want...)
			want = append(want, j.Node)
		}
		j.Watch.Stop()
		vanishOr(c, b, "q", "a Create whose list was lost", want, a, want[:1])
		if _, err := a.List(c.ctx, "q"); err != nil && !errors.Is(err, driver.ErrUnavailable) && a.Err() == nil {
			c.errorf("List whose reply was lost returned %q, expected an error that matches ErrUnavailable (rule 10)", err)
		}
		if a.Err() != nil {
			c.logf("the session ended with its connection: %v", a.Err())
			return
		}
	}
}

// cleanUpSparesOthers makes the failed node one of many of the same prefix.
func cleanUpSparesOthers(c *check) {
	a, b := c.twoSessions()
	rest := []driver.Node{c.create(b, "q", writer).Node}
	want := slices.Clone(rest)
	for i := range 6 {
		c.lose(a, faults.OpCreate, i%2 == 0)
		p, err := tryCreate(c.ctx, a, "q", writer)
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

// createSparesCopy puts a foreign node into the queue that holds the data of a
// Create whose reply is lost.
func createSparesCopy(c *check) {
	a, b := c.twoSessions()
	for _, committed := range []bool{false, true} {
		queue := fmt.Sprintf("copied-%v", committed)
		d := data()
		first := c.create(a, queue, writer)
		name := driver.FormatName(writer, first.Seq+10)
		c.putNode(queue, name, string(d))
		want := c.list(a, queue)
		if len(want) != 2 || want[1].Name != name {
			c.fatalf("List returned %v, expected %s and the foreign node %s", want, first.Name, name)
		}
		rest := want[1:]
		c.lose(a, faults.OpCreate, committed)
		j, err := a.Create(c.ctx, queue, driver.NodeSpec{Prefix: writer, Data: d})
		if !failedCreate(c, a, c.ctx, err) {
			if j.Name == name {
				c.errorf("Create whose reply was lost returned %s, a foreign node that holds the same data", name)
			}
			want = append(want, j.Node)
			slices.SortFunc(want, bySeq) // a foreign node need not move the sequence on
		}
		vanishOr(c, b, queue, "a Create whose reply was lost, beside a foreign node that holds the same data", want, a, rest)
		if a.Err() != nil {
			return
		}
	}
}

func bySeq(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) }

// createCutOff gives up creates that are on their way, and looks for them after
// they had the chance to arrive.
func createCutOff(c *check) {
	a, b := c.twoSessions()
	theirs := c.create(b, "q", writer)
	want, rest := []driver.Node{theirs.Node}, []driver.Node{theirs.Node}
	heal := c.cutOff(a)
	for range 3 {
		ctx, cancel := context.WithTimeout(c.ctx, 20*time.Millisecond)
		p, err := tryCreate(ctx, a, "q", writer)
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

// createLate lets a Create arrive after its caller was told that it failed:
// before the driver can have cleaned up, and after it must have.
func createLate(c *check) {
	a, b := c.twoSessions()
	theirs := c.create(b, "q", writer)
	want, rest := []driver.Node{theirs.Node}, []driver.Node{theirs.Node}
	for i := range 4 {
		arrive := c.holdRequest(a, faults.OpCreate)
		ctx, cancel := context.WithTimeout(c.ctx, c.config.sessionTimeout()/8)
		p, err := tryCreate(ctx, a, "q", "late-W-")
		if !failedCreate(c, a, ctx, err) {
			want = append(want, p.Node)
		}
		cancel()
		if i%2 == 1 { // the driver has a new connection, and has used it
			if mine, ok := createUnlessEnded(c, a, "q", writer); ok {
				want = append(want, mine.Node)
			}
			time.Sleep(c.config.sessionTimeout() / 8)
		}
		arrive()
	}
	vanishOr(c, b, "q", "a Create that arrived after its caller was told that it failed", want, a, rest)
}

// createAfterExpiry calls Create in a session that the store has ended and that
// may not know yet.
func createAfterExpiry(c *check) {
	b := c.session()
	theirs := c.create(b, "q", writer)
	for range 4 {
		a := c.session()
		c.create(a, "q", writer)
		c.expire(a)
		c.together(2, func(int) {
			for range 3 {
				p, err := tryCreate(c.ctx, a, "q", writer)
				if !failedCreate(c, a, c.ctx, err) {
					c.errorf("Create returned %s although the store had ended the session before, expected an error", p.Name)
				}
			}
		})
		vanish(c, b, "q", "a session that the store ended before Create was called", theirs.Node)
	}
}
