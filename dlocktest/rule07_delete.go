package dlocktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var deleteCases = []testCase{
	{name: "delete-removes-the-node-and-no-other", why: whyDelete + "; or " + whyStale, run: pair(func(c *check, a, b session) {
		var places []driver.Place
		var owners []session
		for i := range 12 {
			owners = append(owners, []session{a, b}[i%2])
			places = append(places, c.create(owners[i], "q", writer))
		}
		c.create(a, "q/below", writer)
		for len(places) > 0 {
			i := rand.IntN(len(places))
			owner := owners[i]
			c.delete(owner, "q", places[i])
			owners, places = slices.Delete(owners, i, i+1), slices.Delete(places, i, i+1)
			c.wantNodes("the node's own session, after Delete", c.list(owner, "q"), nodesOf(places)...)
			c.wantNodes("another session, after Delete", c.listAfterWrite(b, "q"), nodesOf(places)...)
		}
	})},
	{name: "a-delete-of-either-cause-can-be-repeated", why: whyDelete, run: pair(func(c *check, a, b session) {
		for i := range 4 {
			stays, p := c.create(b, "q", writer), c.create(a, "q", writer)
			first, again := driver.Cause(i/2), driver.Cause(i%2)
			c.remove(a, "q", p, first)
			c.wantNodes(fmt.Sprintf("after Delete with the cause %v", first), c.listAfterWrite(b, "q"), stays.Node)
			c.wantDeleted("a second Delete", a.Delete(c.ctx, "q", p, again))
			c.wantDeleted("a third Delete", a.Delete(c.ctx, "q", p, first))
			c.wantNodes("after Delete was repeated", c.listAfterWrite(b, "q"), stays.Node)
			c.delete(b, "q", stays)
		}
	})},
	{name: "a-delete-after-an-operator-finds-the-node-gone", why: whyGone, needs: needRemoveNode, run: deleteGone(nodeRemoved)},
	{name: "a-delete-in-a-removed-queue-finds-the-node-gone", why: whyGone, needs: needRemoveQueue, run: deleteGone(queueRemoved)},
	{name: "a-repeat-spares-a-node-that-took-the-name", why: whyStale, needs: needRemoveQueue, run: pair(func(c *check, a, b session) {
		for range 2 {
			first, second := c.create(a, "q", writer), c.create(a, "q", writer)
			c.delete(a, "q", first)
			c.delete(a, "q", second)
			c.removeQueue("q")
			stay := createNamesakes(c, a, b, "q", first.Node)
			c.wantDeleted("a repeated Delete", a.Delete(c.ctx, "q", first, driver.Released))
			c.wantDeleted("a repeated Delete", a.Delete(c.ctx, "q", second, driver.Changed))
			c.wantNodes("after a Delete was repeated", c.listAfterWrite(b, "q"), stay...)
			c.removeQueue("q")
		}
	})},
	{name: "a-first-delete-of-a-node-known-to-be-gone-spares-a-node-that-took-the-name", why: whyStale, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			first, second := c.create(a, "q", writer), c.create(a, "q", writer)
			c.goneWithQueue(a, first, second)
			stay := createNamesakes(c, a, b, "q", first.Node)
			c.wantGone("Delete", a.Delete(c.ctx, "q", first, driver.Released))
			c.wantGone("Delete", a.Delete(c.ctx, "q", second, driver.Changed))
			c.wantNodes("after a Delete of a node known to be gone", c.listAfterWrite(b, "q"), stay...)
		})},
	{name: "a-reply-lost-before-the-commit-can-be-repeated", why: whyDelete, needs: needLoseRequest, run: deleteLost(false)},
	{name: "a-reply-lost-after-the-commit-can-be-repeated", why: whyDelete, needs: needLoseReply, run: deleteLost(true)},
	{name: "a-repeat-after-a-lost-reply-spares-a-node-that-took-the-name", why: whyStale, needs: needLoseReply | needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.lose(a, faults.OpDelete, true)
			inDoubtDelete(c, a, c.ctx, a.Delete(c.ctx, "q", p, driver.Changed))
			eventuallyHolds(c, b, "q", "a Delete that was carried out")
			c.removeQueue("q")
			theirs := c.create(b, "q", writer)
			repeatDelete(c, a, "q", p, driver.Changed)
			c.wantNodes("after a Delete was repeated whose reply had been lost", c.listAfterWrite(b, "q"), theirs.Node)
		})},
	{name: "a-delete-that-arrives-late-spares-a-node-that-took-the-name", why: whyStale, needs: needHoldRequest | needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			for i := range 2 {
				queue := fmt.Sprintf("late-%d", i)
				p := c.create(a, queue, writer)
				arrive := c.holdRequest(a, faults.OpDelete)
				ctx, cancel := c.shortly()
				inDoubtDelete(c, a, ctx, a.Delete(ctx, queue, p, driver.Cause(i)))
				cancel()
				repeatDelete(c, a, queue, p, driver.Cause(i))
				c.removeQueue(queue)
				theirs := c.create(b, queue, writer)
				arrive()
				c.wantNodes("after a Delete arrived late", c.listAfterWrite(b, queue), theirs.Node)
				if c.endedWithConnection(a) {
					return
				}
			}
		})},
	{name: "a-copy-of-the-node-is-not-the-node", why: whyStale, needs: needRemoveQueue | needPutNode, run: pair(func(c *check, a, b session) {
		p, text := c.createWithData(a, "q", writer)
		c.goneWithQueue(a, p)
		c.putNode("q", p.Name, text)
		before := c.listAfterWrite(b, "q")
		if len(before) != 1 || before[0].Name != p.Name {
			c.fatalf("List returned %v, expected the node %s of another program alone", before, p.Name)
		}
		c.listAfterWrite(a, "q")
		c.wantEndedWatch(c.watch(a, "q", p), "the node was removed and another program put a node of its name and data into the queue")
		c.wantGone("Delete", a.Delete(c.ctx, "q", p, driver.Released))
		c.wantGone("Replace", replaceErr(c, a, "q", p, shared))
		c.wantNodes("after Delete of a node that another program has copied", c.listAfterWrite(b, "q"), before...)
	})},
	{name: "a-delete-cancelled-at-any-time-can-be-repeated", why: whyDelete, run: pair(func(c *check, a, b session) {
		stays := c.create(b, "q", writer)
		usual := createTime(c, a)
		c.rounds(100, func(i int) {
			p := c.create(a, "q", writer)
			ctx, cancel := context.WithTimeout(c.ctx, rand.N(2*usual+1))
			defer cancel()
			why := driver.Cause(i % 2)
			inDoubtDelete(c, a, ctx, a.Delete(ctx, "q", p, why))
			repeatDelete(c, a, "q", p, why)
		})
		c.wantNodes("after every Delete was repeated", c.listAfterWrite(b, "q"), stays.Node)
		c.wantAlive(a, "calls whose ctx ended")
	})},
}

func deleteGone(before event) func(*check) {
	return solo(func(c *check, s session) {
		for _, why := range []driver.Cause{driver.Released, driver.Changed} {
			p := c.create(s, "q", writer)
			before.play(c, s, p)
			if why == driver.Changed {
				c.wantGone("Replace", replaceErr(c, s, "q", p, shared))
			}
			c.wantGone("Delete", s.Delete(c.ctx, "q", p, why))
			c.wantGone("a repeated Delete", s.Delete(c.ctx, "q", p, driver.Changed))
		}
	})
}

func deleteLost(committed bool) func(*check) {
	return pair(func(c *check, a, b session) {
		p, mine, theirs := c.create(a, "q", writer), c.create(a, "q", writer), c.create(b, "q", writer)
		c.lose(a, faults.OpDelete, committed)
		inDoubtDelete(c, a, c.ctx, a.Delete(c.ctx, "q", p, driver.Changed))
		repeatDelete(c, a, "q", p, driver.Changed)
		eventuallyHoldsOr(c, b, "q", "a Delete that was repeated after a lost reply",
			[]driver.Node{mine.Node, theirs.Node}, a, []driver.Node{theirs.Node})
	})
}
