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
	{name: "delete-removes-the-node-and-no-other", why: whyDelete + "; or " + whyStale,
		run: pair(func(c *check, a, b session) {
			var places []driver.Place
			var owners []driver.Session
			for i := range 12 {
				owners = append(owners, []driver.Session{a, b}[i%2])
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
			stays := c.create(b, "q", writer)
			p := c.create(a, "q", writer)
			first, again := driver.Cause(i/2), driver.Cause(i%2)
			c.remove(a, "q", p, first)
			c.wantNodes(fmt.Sprintf("after Delete with the cause %v", first), c.listAfterWrite(b, "q"), stays.Node)
			c.wantDeleted("a second Delete", a.Delete(c.ctx, "q", p, again))
			c.wantDeleted("a third Delete", a.Delete(c.ctx, "q", p, first))
			c.wantNodes("after Delete was repeated", c.listAfterWrite(b, "q"), stays.Node)
			c.delete(b, "q", stays)
		}
	})},
	{name: "a-delete-after-an-operator-finds-the-node-gone", why: whyGone, needs: needRemoveNode,
		run: deleteGone(func(c *check, p driver.Place) { c.removeNode("q", p.Name) })},
	{name: "a-delete-in-a-removed-queue-finds-the-node-gone", why: whyGone, needs: needRemoveQueue,
		run: deleteGone(func(c *check, _ driver.Place) { c.removeQueue("q") })},
	{name: "a-late-repeat-removes-nothing", why: whyStale, run: pair(func(c *check, a, b session) {
		var gone []driver.Place
		for range 5 {
			p := c.create(a, "q", writer)
			c.delete(a, "q", p)
			gone = append(gone, p)
		}
		var stay []driver.Node
		for i := range 10 {
			stay = append(stay, c.create([]driver.Session{a, b}[i%2], "q", writer).Node)
		}
		for _, p := range gone {
			c.wantDeleted("a late repeat of Delete", a.Delete(c.ctx, "q", p, driver.Changed))
			c.wantDeleted("a late repeat of Delete", a.Delete(c.ctx, "q", p, driver.Released))
		}
		c.wantNodes("after late repeats of Delete", c.listAfterWrite(b, "q"), stay...)
	})},
	{name: "a-repeat-spares-a-node-that-took-the-name", why: whyStale, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			for i := range 2 {
				queue := fmt.Sprintf("q%d", i)
				first := c.create(a, queue, writer)
				second := c.create(a, queue, writer)
				c.delete(a, queue, first)
				c.delete(a, queue, second)
				c.removeQueue(queue)
				stay := createNamesakes(c, a, b, queue, first.Node)
				c.wantDeleted("a repeated Delete", a.Delete(c.ctx, queue, first, driver.Released))
				c.wantDeleted("a repeated Delete", a.Delete(c.ctx, queue, second, driver.Changed))
				c.wantNodes("after a Delete was repeated", c.listAfterWrite(b, queue), stay...)
			}
		})},
	{name: "a-first-delete-of-a-node-known-to-be-gone-spares-a-node-that-took-the-name", why: whyStale,
		needs: needRemoveQueue, run: pair(func(c *check, a, b session) {
			// knownGoneSparesNamesake deletes nodes that the session already saw disappear.
			// This must not remove newer nodes with the same names.
			first := c.create(a, "q", writer)
			second := c.create(a, "q", writer)
			w1, w2 := c.watch(a, "q", first), c.watch(a, "q", second)
			c.removeQueue("q")
			c.wantUnreleasedEnd(w1, "removal of the queue")
			c.wantUnreleasedEnd(w2, "removal of the queue")
			c.eventually(func() bool { return len(c.list(a, "q")) == 0 }, "the session's List shows that its node is gone with its queue")
			stay := createNamesakes(c, a, b, "q", first.Node)
			c.wantGone("Delete", a.Delete(c.ctx, "q", first, driver.Released))
			c.wantGone("Delete", a.Delete(c.ctx, "q", second, driver.Changed))
			c.wantNodes("after a Delete of a node known to be gone", c.listAfterWrite(b, "q"), stay...)
		})},
	{name: "a-reply-lost-before-the-commit-can-be-repeated", why: whyDelete, needs: needLoseRequest,
		run: func(c *check) { deleteLosesReply(c, false) }},
	{name: "a-reply-lost-after-the-commit-can-be-repeated", why: whyDelete, needs: needLoseReply,
		run: func(c *check) { deleteLosesReply(c, true) }},
	{name: "a-repeat-after-a-lost-reply-spares-a-node-that-took-the-name", why: whyStale,
		needs: needLoseReply | needRemoveQueue, run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.lose(a, faults.OpDelete, true)
			inDoubtDelete(c, a, c.ctx, a.Delete(c.ctx, "q", p, driver.Changed))
			c.eventually(func() bool { return !has(c.list(b, "q"), p.Node) }, "a Delete that was carried out removes the node")
			c.removeQueue("q")
			theirs := c.create(b, "q", writer)
			c.logf("the name %s came again: %v", p.Name, theirs.Name == p.Name)
			repeatDelete(c, a, "q", p, driver.Changed)
			c.wantNodes("after a Delete was repeated whose reply had been lost", c.listAfterWrite(b, "q"), theirs.Node)
		})},
	{name: "a-delete-that-arrives-late-spares-a-node-that-took-the-name", why: whyStale,
		needs: needHoldRequest | needRemoveQueue, run: pair(func(c *check, a, b session) {
			// lateDeleteSparesNamesake lets the request of a Delete arrive late, when a
			// retry has already succeeded and a new node may have the same name. The new
			// node must survive.
			for i := range 2 {
				queue := fmt.Sprintf("late-%d", i)
				p := c.create(a, queue, writer)
				arrive := c.holdRequest(a, faults.OpDelete)
				ctx, cancel := context.WithTimeout(c.ctx, c.config.sessionTimeout()/8)
				inDoubtDelete(c, a, ctx, a.Delete(ctx, queue, p, driver.Cause(i)))
				cancel()
				repeatDelete(c, a, queue, p, driver.Cause(i))
				c.removeQueue(queue)
				theirs := c.create(b, queue, writer)
				c.logf("the name %s came again: %v", p.Name, theirs.Name == p.Name)
				arrive()
				c.wantNodes("after a Delete arrived late", c.listAfterWrite(b, queue), theirs.Node)
				if c.endedWithConnection(a) {
					return
				}
			}
		})},
	{name: "a-copy-of-the-node-is-not-the-node", why: whyStale, needs: needRemoveQueue | needPutNode,
		run: pair(func(c *check, a, b session) {
			// deleteSparesCopy replaces the session's node by another program's node with
			// the same name and data, which Delete must not remove.
			p, text := c.createWithData(a, "q", writer)
			w := c.watch(a, "q", p)
			c.removeQueue("q")
			c.wantUnreleasedEnd(w, "removal of the queue")
			c.eventually(func() bool { return len(c.list(a, "q")) == 0 }, "the session's List shows that its node is gone with its queue")
			c.putNode("q", p.Name, text)
			before := c.listAfterWrite(b, "q")
			if len(before) != 1 || before[0].Name != p.Name {
				c.fatalf("List returned %v, expected the node %s of another program alone", before, p.Name)
			}
			c.listAfterWrite(a, "q")
			c.wantEndedWatch(c.watch(a, "q", p), "the node was removed and another program put a node of its name and data into the queue")
			c.wantGone("Delete", a.Delete(c.ctx, "q", p, driver.Released))
			_, err := a.Replace(c.ctx, "q", p, shared)
			c.wantGone("Replace", err)
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

func deleteGone(remove func(c *check, p driver.Place)) func(c *check) {
	return func(c *check) {
		s := c.session()
		for _, why := range []driver.Cause{driver.Released, driver.Changed} {
			p := c.create(s, "q", writer)
			remove(c, p)
			c.wantGone("Delete", s.Delete(c.ctx, "q", p, why))
			c.wantGone("a repeated Delete", s.Delete(c.ctx, "q", p, driver.Changed))
		}
	}
}

func deleteLosesReply(c *check, committed bool) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	mine, theirs := c.create(a, "q", writer), c.create(b, "q", writer)
	c.lose(a, faults.OpDelete, committed)
	inDoubtDelete(c, a, c.ctx, a.Delete(c.ctx, "q", p, driver.Changed))
	repeatDelete(c, a, "q", p, driver.Changed)
	eventuallyHoldsOr(c, b, "q", "a Delete that was repeated after a lost reply",
		[]driver.Node{mine.Node, theirs.Node}, a, []driver.Node{theirs.Node})
}
