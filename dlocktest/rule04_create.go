package dlocktest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

const whyCleanUp = whyOrphan + "; a clean-up that removes too much takes the lock away from another contender of the same host"

var createCases = []testCase{
	{name: "a-create-cancelled-at-any-time-leaves-nothing", why: whyOrphan, run: pair(func(c *check, a, b session) {
		stays := c.create(b, "q", writer)
		usual := createTime(c, a)
		want := []driver.Node{stays.Node}
		failures := 0
		c.rounds(200, func(i int) {
			ctx, cancel := soonEnded(c.ctx, i, usual)
			defer cancel()
			p, err := tryCreate(ctx, a, "q", fmt.Sprintf("try%d-W-", i))
			if createFailed(c, a, ctx, err) {
				failures++
			} else if i%10 == 6 {
				want = append(want, p.Node)
			} else {
				c.delete(a, "q", p)
			}
			if i%4 == 3 {
				// A driver may need a new connection after each Create that was
				// cancelled. This waits until the server has accepted them.
				c.list(a, "q")
			}
		})
		c.logf("%d creates were cancelled in time (a create takes %v)", failures, usual)
		eventuallyHolds(c, b, "q", "a Create that returned an error", want...)
		c.wantAlive(a, "calls whose ctx ended")
		last := c.create(a, "q", writer)
		eventuallyHolds(c, b, "q", "a Create that returned an error", append(want, last.Node)...)
	})},
	{name: "a-request-lost-leaves-nothing-and-takes-no-other-node", why: whyCleanUp, needs: needLoseRequest,
		run: func(c *check) { createLost(c, false) }},
	{name: "a-reply-lost-leaves-nothing-and-takes-no-other-node", why: whyCleanUp, needs: needLoseReply,
		run: func(c *check) { createLost(c, true) }},
	{name: "a-create-whose-list-failed-leaves-its-place-or-nothing", why: whyOrphan, needs: needLosses,
		run: pair(func(c *check, a, b session) {
			// createLosesList loses the list request that Create may send besides the
			// request for its node. If Create then fails, it must leave no node. If the
			// driver's Create sends no list request, the session's next List is lost
			// instead.
			want := []driver.Node{c.create(b, "q", writer).Node}
			for i := range 6 {
				c.lose(a, faults.OpList, i%2 == 0)
				j, err := tryJoin(c.ctx, a, "q", writer, last)
				if !createFailed(c, a, c.ctx, err) {
					// The node of an earlier Create may appear late, until the driver
					// removes it.
					j.Ahead = slices.DeleteFunc(j.Ahead, func(n driver.Node) bool { return !slices.Contains(want, n) })
					c.wantAhead(j, want...)
					want = append(want, j.Node)
				}
				j.Watch.Stop()
				eventuallyHoldsOr(c, b, "q", "a Create whose list was lost", want, a, want[:1])
				_, err = a.List(c.ctx, "q")
				c.mayFail("List whose request or reply was lost", a, c.ctx, err)
				if c.endedWithConnection(a) {
					return
				}
			}
		})},
	{name: "a-foreign-copy-is-not-taken-for-the-lost-node", why: "a contender would hold the lock with a node of another program, which stays when the session ends",
		needs: needLosses | needPutNode, run: pair(func(c *check, a, b session) {
			// createSparesCopy adds a node of another program that has the same data as a
			// node whose Create was lost. The driver must not mistake it for its own.
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
				if !createFailed(c, a, c.ctx, err) {
					if j.Name == name {
						c.errorf("Create whose reply was lost returned %s, a foreign node that holds the same data", name)
					}
					want = append(want, j.Node)
					slices.SortFunc(want, bySeq) // the new node may precede the other program's
				}
				eventuallyHoldsOr(c, b, queue, "a Create whose reply was lost, beside a foreign node that holds the same data", want, a, rest)
				if c.endedWithConnection(a) {
					return
				}
			}
		})},
	{name: "a-create-given-up-while-cut-off-leaves-nothing", why: whyOrphan, needs: needCutOff,
		run: pair(func(c *check, a, b session) {
			theirs := c.create(b, "q", writer)
			want, rest := []driver.Node{theirs.Node}, []driver.Node{theirs.Node}
			heal := c.cutOff(a)
			for range 3 {
				ctx, cancel := context.WithTimeout(c.ctx, 20*time.Millisecond)
				p, err := tryCreate(ctx, a, "q", writer)
				if !createFailed(c, a, ctx, err) {
					want = append(want, p.Node)
				}
				cancel()
			}
			heal()
			if last, ok := createUnlessEnded(c, a, "q", writer); ok {
				want = append(want, last.Node)
			}
			eventuallyHoldsOr(c, b, "q", "a Create that was given up", want, a, rest)
		})},
	{name: "a-create-that-arrives-late-leaves-nothing", why: whyOrphan, needs: needHoldRequest,
		run: pair(func(c *check, a, b session) {
			theirs := c.create(b, "q", writer)
			want, rest := []driver.Node{theirs.Node}, []driver.Node{theirs.Node}
			anyFailed := false
			for i := range 4 {
				arrive := c.holdRequest(a, faults.OpCreate)
				ctx, cancel := context.WithTimeout(c.ctx, c.config.sessionTimeout()/8)
				p, err := tryCreate(ctx, a, "q", "late-W-")
				if createFailed(c, a, ctx, err) {
					anyFailed = true
				} else {
					want = append(want, p.Node)
				}
				cancel()
				// In every second round, let the driver reconnect and clean up first.
				if i%2 == 1 {
					if mine, ok := createUnlessEnded(c, a, "q", writer); ok {
						want = append(want, mine.Node)
					}
					time.Sleep(c.config.sessionTimeout() / 8)
				}
				arrive()
			}
			eventuallyHoldsOr(c, b, "q", "a Create whose request arrived after Create had returned an error", want, a, rest)
			c.wantLoss("HoldRequest", anyFailed)
		})},
	{name: "a-create-after-the-store-ended-the-session-leaves-nothing",
		why:   "a node that belongs to no session blocks the lock for ever",
		needs: needDrop, run: solo(func(c *check, b session) {
			// createAfterExpiry calls Create in a session that the store has ended and that
			// may not know it yet.
			theirs := c.create(b, "q", writer)
			for range 4 {
				a := c.session()
				c.create(a, "q", writer)
				c.expire(a)
				c.together(2, func(int) {
					for range 3 {
						p, err := tryCreate(c.ctx, a, "q", writer)
						if !createFailed(c, a, c.ctx, err) {
							c.errorf("Create returned %s although the store had ended the session before, expected an error", p.Name)
						}
					}
				})
				eventuallyHolds(c, b, "q", "a session that the store ended before Create was called", theirs.Node)
			}
		})},
}

// createLost loses the requests of several Creates or, if committed, their
// replies. The queue also holds nodes with the same prefix, which the driver
// must not mistake for the lost ones.
func createLost(c *check, committed bool) {
	a, b := c.twoSessions()
	rest := []driver.Node{c.create(b, "q", writer).Node}
	want, anyFailed := slices.Clone(rest), false
	for range 3 {
		c.lose(a, faults.OpCreate, committed)
		p, err := tryCreate(c.ctx, a, "q", writer)
		if createFailed(c, a, c.ctx, err) {
			anyFailed = true
		} else {
			want = append(want, p.Node)
		}
		eventuallyHoldsOr(c, b, "q", "a Create whose request or reply was lost", want, a, rest)
		if mine, ok := createUnlessEnded(c, a, "q", writer); ok {
			want = append(want, mine.Node)
		}
		theirs := c.create(b, "q", writer).Node
		want, rest = append(want, theirs), append(rest, theirs)
	}
	eventuallyHoldsOr(c, b, "q", "a Create whose request or reply was lost", want, a, rest)
	if committed {
		c.wantLoss("LoseReply", anyFailed)
	} else {
		c.wantLoss("LoseRequest", anyFailed)
	}
}

func bySeq(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) }

// wantLoss reports a Config hook as ineffective if it had to lose requests or
// replies but no Create failed.
func (c *check) wantLoss(hook string, failed bool) {
	if !failed && !c.failed() && !c.config.Repeats {
		c.hookHadNoEffect(hook, "each Create whose request or reply it had to lose returned success; "+
			"if the driver repeats such a Create, set Config.Repeats")
	}
}
