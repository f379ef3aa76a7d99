package dlocktest

import (
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

const (
	whyReleased = "a contender that receives Released holds the lock without another List: sent for anything else, it makes two holders"
	whyGoesOn   = "a contender looks at its watch once more before it holds the lock: the watch has to show whether the own node stands"
)

var releasedCases = []testCase{
	{name: "a-release-wakes-the-watches", why: whyWatch, run: waiters(func(c *check, a, b session) {
		for range 10 {
			p := c.create(a, "q", writer)
			q := c.join(b, "q", writer, last)
			watches := []driver.Watch{c.watch(b, "q", q.Place, p.Node), c.watch(b, "q", named(q.Place), p.Node), c.watch(b, "q", q.Place, p.Node)}
			if q.Watch.C != nil {
				watches = append(watches, q.Watch)
			}
			c.release(a, "q", p)
			for _, w := range watches {
				c.awaitNews(w, "release of the node ahead")
			}
			c.delete(b, "q", q.Place)
			for _, w := range watches {
				c.wantUnreleasedEnd(w, "release of the node ahead and Delete of the own one")
			}
		}
	})},
	{name: "a-release-that-meets-the-arming-is-not-missed", why: whyWatch, run: watchMeetsDelete(driver.Released)},
	{name: "a-reply-lost-can-be-repeated", why: whyDelete, needs: needLosses, run: waiters(func(c *check, a, b session) {
		for i := range 4 {
			p := c.create(a, "q", writer)
			q, w := c.waitFor(b, "q", p.Node)
			c.lose(a, faults.OpDelete, i%2 == 0)
			inDoubtDelete(c, a, c.ctx, a.Delete(c.ctx, "q", p, driver.Released))
			repeatDelete(c, a, "q", p, driver.Cause(i/2))
			c.awaitNews(w, "release of the node ahead whose reply was lost, and its repeat")
			eventuallyHolds(c, b, "q", "a release that was repeated after a lost reply", q.Node)
			c.delete(b, "q", q)
			if c.endedWithConnection(a) {
				return
			}
		}
	})},
	{name: "list-shows-what-released-says", why: "a contender that lists after Released would wait for a node that is gone", needs: needReleased,
		run: waiters(func(c *check, a, b session) {
			c.rounds(60, func(int) {
				p := c.create(a, "q", writer)
				q, w := c.waitFor(b, "q", p.Node)
				c.atOnce(func() { c.release(a, "q", p) }, func() {
					if c.awaitNews(w, "release of the node ahead") {
						c.wantNodes("after Released was received", c.list(b, "q"), q.Node)
					}
				})
				c.delete(b, "q", q)
			})
		})},
	{name: "after-released-the-watch-goes-on-for-the-own-node", why: whyGoesOn, needs: needReleased,
		run: waiters(func(c *check, a, b session) {
			early := 0
			const n = 5
			for i := range n {
				first, second, third := c.create(a, "q", writer), c.create(a, "q", writer), c.create(a, "q", writer)
				q, w := c.waitFor(b, "q", first.Node, second.Node, third.Node)
				c.release(a, "q", first)
				goesOn := c.awaitNews(w, "release of a node ahead")
				c.delete(a, "q", second)
				c.release(a, "q", third)
				if goesOn && c.endsEarly(w) {
					early++
				}
				c.delete(b, "q", q)
				c.wantUnreleasedEnd(w, "Delete of the own node, after Released was received (round %d)", i)
			}
			if early == n {
				c.errorf("in %d rounds of %d a watch sent something or ended after Released, while its own node stood: expected it to go on for that node alone", early, n)
			}
		})},
	{name: "released-does-not-overtake-the-delete-of-the-own-node", why: whyOvertook, run: notOvertaken(10, deleted)},
	{name: "released-does-not-overtake-an-operator", why: whyOvertook, needs: needRemoveNode, run: notOvertaken(10, nodeRemoved)},
	{name: "released-does-not-overtake-an-operator-while-notices-are-lost", why: whyOvertook, needs: needRemoveNode | needSilenceNotices,
		run: notOvertaken(3, event{"an operator removed the node while no notice reached its session", func(c *check, s session, p driver.Place) {
			c.silenceNotices(s) // only three rounds, because each takes long
			c.removeNode("q", p.Name)
		}})},
	{name: "released-does-not-overtake-the-removal-of-the-queue", why: whyOvertook, needs: needRemoveQueue, run: notOvertaken(10, queueRemoved)},
	{name: "released-does-not-overtake-the-expiry-of-the-own-session", why: whyOvertook, needs: needDrop, run: notOvertaken(10, expires)},
	{name: "the-release-of-the-own-node-is-not-released", why: whyOvertook, run: waiters(func(c *check, a, b session) {
		for range 10 {
			ahead, p := c.create(b, "q", writer), c.create(a, "q", writer)
			alone, both := c.watch(a, "q", p), c.watch(a, "q", p, ahead.Node)
			c.release(a, "q", p)
			c.wantUnreleasedEnd(alone, "release of the own node")
			c.wantUnreleasedEnd(both, "release of the own node, with one ahead that stands")
			c.delete(b, "q", ahead)
		}
	})},
	{name: "a-watch-of-a-queue-sends-no-released", why: whyReleased, run: queueSees(released)},
	{name: "delete-is-not-released", why: whyReleased, run: waiters(func(c *check, a, b session) {
		for range 5 {
			p, watches := nodeWithWatches(c, a, b)
			other := c.create(a, "q", writer)
			c.release(a, "q", other)
			c.delete(a, "q", p)
			wantUnreleasedEnds(c, watches, "Release of another node of the queue and Delete of this one")
		}
	})},
	{name: "a-node-gone-before-is-not-released", why: whyReleased, run: waiters(func(c *check, a, b session) {
		for _, why := range []driver.Cause{driver.Changed, driver.Released} {
			p := c.create(a, "q", writer)
			mine, theirs := c.create(a, "q", writer), c.create(b, "q", writer)
			c.remove(a, "q", p, why)
			c.wantEndedWatch(c.watch(a, "q", p), "Delete of the own node with the cause %v", why)
			c.listAfterWrite(b, "q")
			if why == driver.Changed {
				c.wantUnreleasedEnd(c.watch(a, "q", mine, p.Node), "it was armed on a node ahead that had been deleted")
				c.wantUnreleasedEnd(c.watch(b, "q", theirs, p.Node), "it was armed on a node ahead that had been deleted")
			} else { // the driver may still remember the release
				c.awaitNews(c.watch(b, "q", theirs, p.Node), "it was armed on a node ahead that had been released")
			}
		}
	})},
	{name: "replace-is-not-released", why: whyReleased, needs: needReleased, run: watchReplaced},
	{name: "close-is-not-released", why: whyReleased, needs: needReleased, run: endsWatches(closes)},
	{name: "expiry-is-not-released", why: whyReleased, needs: needReleased | needDrop, run: endsWatches(expires)},
	{name: "an-operator's-removal-is-not-released", why: whyReleased, needs: needReleased | needRemoveNode, run: endsWatches(nodeRemoved)},
	{name: "the-removal-of-a-queue-is-not-released", why: whyReleased, needs: needReleased | needRemoveQueue, run: endsWatches(queueRemoved)},
	{name: "a-broken-connection-is-not-released", why: whyReleased, needs: needReset,
		run: waiters(func(c *check, a, b session) {
			p, watches := nodeWithWatches(c, a, b)
			c.reset(b)
			c.reset(a)
			repeatDelete(c, a, "q", p, driver.Changed)
			wantUnreleasedEnds(c, watches, "Delete of the node after the connections of both sessions broke")
		})},
	{name: "a-late-release-is-not-that-of-a-node-that-took-the-name", why: whyReleased, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.release(a, "q", p)
			c.removeQueue("q")
			stay := createNamesakes(c, a, b, "q", p.Node)
			q, w := c.waitFor(a, "q", stay[0])
			c.wantDeleted("a repeated release", a.Delete(c.ctx, "q", p, driver.Released))
			time.Sleep(c.config.sessionTimeout() / 50) // give a wrong Released time to arrive
			c.wantNodes("after a release was repeated", c.listAfterWrite(a, "q"), append(stay, q.Node)...)
			c.close(b)
			c.wantUnreleasedEnd(w, "Close of the session of the node ahead, and an earlier release of a node of the same name")
		})},
}

// notOvertaken returns a case whose contender loses its node before the node
// ahead is released. A watch must not send Released without ending at once.
func notOvertaken(rounds int, own event) func(*check) {
	round := func(armed int) func(*check) {
		return waiters(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			j := c.join(b, "q", writer, last)
			watches := []driver.Watch{c.watch(b, "q", j.Place, p.Node)}
			for range armed {
				watches = append(watches, c.watch(b, "q", j.Place, p.Node))
			}
			if j.Watch.C != nil {
				watches = append(watches, j.Watch)
			}
			own.play(c, b, j.Place)
			if err := a.Delete(c.ctx, "q", p, driver.Released); err != nil && !errors.Is(err, driver.ErrGone) && !errors.Is(err, driver.ErrUnavailable) {
				c.errorf("Delete returned %q, expected success, ErrGone or ErrUnavailable", err)
			}
			for _, w := range watches {
				if c.awaitNews(w, "%s, and then release of the node ahead", own) && !hasNews(w.C) {
					c.fatalf("Released was received and the watch is open, although the own node was gone before the release: %s", own)
				}
			}
			c.close(a)
			c.expectEnd(b)
			_ = b.Close()
		})
	}
	return func(c *check) {
		for i := range rounds {
			round(i % 3)(c)
		}
	}
}
