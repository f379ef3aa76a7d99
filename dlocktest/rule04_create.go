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
		want := []driver.Node{c.create(b, "q", writer).Node}
		usual := createTime(c, a)
		c.rounds(200, func(i int) {
			ctx, cancel := soonEnded(c.ctx, i, usual)
			defer cancel()
			p, err := tryCreate(ctx, a, "q", fmt.Sprintf("try%d-W-", i))
			switch {
			case createFailed(c, a, ctx, err):
			case i%10 == 6:
				want = append(want, p.Node)
			default:
				c.delete(a, "q", p)
			}
			if i%4 == 3 {
				// Each canceled Create may cost the driver a connection. Wait for
				// the server, so that new connections do not come too fast for it.
				c.list(a, "q")
			}
		})
		eventuallyHolds(c, b, "q", "a Create that returned an error", want...)
		c.wantAlive(a, "calls whose ctx ended")
		last := c.create(a, "q", writer)
		eventuallyHolds(c, b, "q", "a Create that returned an error", append(want, last.Node)...)
	})},
	{name: "a-request-lost-leaves-nothing-and-takes-no-other-node", why: whyCleanUp, needs: needLoseRequest, run: createLost(false)},
	{name: "a-reply-lost-leaves-nothing-and-takes-no-other-node", why: whyCleanUp, needs: needLoseReply, run: createLost(true)},
	{name: "a-create-whose-list-failed-leaves-its-place-or-nothing", why: whyOrphan, needs: needLosses, run: pair(func(c *check, a, b session) {
		// Create may send a list besides the request for its node. If it does not,
		// the session's next List is lost instead.
		want := []driver.Node{c.create(b, "q", writer).Node}
		for i := range 6 {
			c.lose(a, faults.OpList, i%2 == 0)
			j, err := tryJoin(c.ctx, a, "q", writer, last)
			if !createFailed(c, a, c.ctx, err) {
				// Ignore the node of an earlier, failed Create, which may
				// appear late and stay until the driver removes it.
				j.Ahead = among(j.Ahead, want)
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
			for _, committed := range []bool{false, true} {
				queue := fmt.Sprintf("copied-%v", committed)
				d := data()
				first := c.create(a, queue, writer)
				foreign := driver.FormatName(writer, first.Seq+10)
				c.putNode(queue, foreign, string(d))
				want := c.list(a, queue)
				if len(want) != 2 || want[1].Name != foreign {
					c.fatalf("List returned %v, expected %s and the foreign node %s", want, first.Name, foreign)
				}
				rest := want[1:]
				c.lose(a, faults.OpCreate, committed)
				j, err := a.Create(c.ctx, queue, driver.NodeSpec{Prefix: writer, Data: d})
				if !createFailed(c, a, c.ctx, err) {
					if j.Name == foreign {
						c.errorf("Create whose reply was lost returned %s, a foreign node that holds the same data", foreign)
					}
					want = append(want, j.Node) // perhaps ahead of the foreign node
					slices.SortFunc(want, func(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) })
				}
				eventuallyHoldsOr(c, b, queue, "a Create whose reply was lost, beside a foreign node that holds the same data", want, a, rest)
				if c.endedWithConnection(a) {
					return
				}
			}
		})},
	{name: "a-create-given-up-while-cut-off-leaves-nothing", why: whyOrphan, needs: needCutOff, run: pair(func(c *check, a, b session) {
		rest := []driver.Node{c.create(b, "q", writer).Node}
		want := slices.Clone(rest)
		heal := c.cutOff(a)
		for range 3 {
			ctx, cancel := context.WithTimeout(c.ctx, 20*time.Millisecond)
			if p, err := tryCreate(ctx, a, "q", writer); !createFailed(c, a, ctx, err) {
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
	{name: "a-create-that-arrives-late-leaves-nothing", why: whyOrphan, needs: needHoldRequest, run: pair(func(c *check, a, b session) {
		rest := []driver.Node{c.create(b, "q", writer).Node}
		want, anyFailed := slices.Clone(rest), false
		for i := range 4 {
			arrive := c.holdRequest(a, faults.OpCreate)
			ctx, cancel := c.shortly()
			p, err := tryCreate(ctx, a, "q", "late-W-")
			if createFailed(c, a, ctx, err) {
				anyFailed = true
			} else {
				want = append(want, p.Node)
			}
			cancel()
			// In odd rounds, let the driver clean up before the request arrives.
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
	{name: "a-create-after-the-store-ended-the-session-leaves-nothing", why: "a node that belongs to no session blocks the lock for ever",
		needs: needDrop, run: solo(func(c *check, b session) {
			theirs := c.create(b, "q", writer)
			for range 4 {
				a := c.session() // its expiry may go unnoticed for a while
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

// createLost loses Creates and, between them, creates nodes with the same
// prefix, which the driver must not mistake for the lost ones.
func createLost(committed bool) func(*check) {
	return pair(func(c *check, a, b session) {
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
		c.wantLoss(map[bool]string{true: "LoseReply", false: "LoseRequest"}[committed], anyFailed)
	})
}

func (c *check) wantLoss(hook string, failed bool) {
	if !failed && !c.failed() && !c.config.Repeats {
		c.hookHadNoEffect(hook, "each Create whose request or reply it had to lose returned success; "+
			"if the driver repeats such a Create, set Config.Repeats")
	}
}
