package dlocktest

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	whyOwn       = "a contender whose node is removed would not notice that it has lost its place, or the lock"
	whyOther     = "an observer of an election, which has no node of its own, would not learn that another contender leads"
	whyAny       = "a contender that waits for any change would miss this one"
	whyOver      = "a contender that waits would not learn that its session has ended and its node is gone"
	whyDowngrade = "a reader that waits for a writer would not get the lock when the writer downgrades"
	whyCtxOf     = "a watch has to outlive the call that arms it: the contender would miss the end of the node, or list the queue for nothing"
)

var watchCases = []testCase{
	{name: "watch-of-a-node-that-is-deleted", why: whyWatch, run: endsWatches(deleted)},
	{name: "watch-of-a-node-deleted-before-arming", why: whyWatch, run: pair(func(c *check, a, b session) {
		p, mine, theirs := c.create(a, "q", writer), c.create(a, "q", writer), c.create(b, "q", writer)
		c.delete(a, "q", p)
		c.wantUnreleasedEnd(c.watch(a, "q", mine, p.Node), "Delete of the node ahead, before the watch was armed")
		c.listAfterWrite(b, "q")
		c.wantUnreleasedEnd(c.watch(b, "q", theirs, p.Node), "Delete of the node ahead by another session, before the watch was armed")
	})},
	{name: "watch-of-a-node-that-never-was", why: whyWatch, run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		never := driver.Place{Node: driver.Node{Name: driver.FormatName("web9-W-", p.Seq), Seq: p.Seq, Epoch: p.Epoch}}
		c.wantUnreleasedEnd(c.watch(s, "q", c.create(s, "q", writer), never.Node), "it was called for the node ahead %s, which never existed", never.Name)
		for _, queue := range []string{"q", "never/was"} {
			c.wantEndedWatch(c.watch(s, queue, never), "it was called for the own node %s in the queue %s, which never existed", never.Name, queue)
		}
	})},
	{name: "watch-of-several-nodes-ends-with-each-of-them", why: whyWatch, run: endsWithAny(3, 0, 1, 2)},
	{name: "watch-of-ten-nodes-ends-with-any-of-them", why: "the first waiter for units of a semaphore would not get what any holder gives back",
		run: endsWithAny(10, 0, 4, 9)},
	{name: "watch-of-an-own-node-that-is-gone-is-closed", why: whyOwn, run: pair(func(c *check, a, b session) {
		ahead, p := c.create(b, "q", writer), c.create(a, "q", writer)
		c.delete(a, "q", p)
		c.wantEndedWatch(c.watch(a, "q", p), "Delete of the node")
		c.wantEndedWatch(c.watch(a, "q", named(p)), "Delete of the node")
		c.wantEndedWatch(c.watch(a, "q", p, ahead.Node), "Delete of the own node, with one ahead that stands")
	})},
	{name: "watch-of-an-own-node-is-of-that-very-node", why: whyOwn, needs: needRemoveQueue, run: pair(func(c *check, a, b session) {
		// The second round first watches a new node with the same name, to
		// catch drivers that keep one watch per name.
		for _, before := range []bool{false, true} {
			p := c.create(a, "q", writer)
			c.removeQueue("q")
			stay := createNamesakes(c, a, b, "q", p.Node)
			if before {
				c.watch(b, "q", driver.Place{Node: stay[0]})
				c.watch(a, "q", driver.Place{Node: stay[1]})
				c.watch(a, "q", driver.Place{Node: stay[1]}, stay[0])
			}
			c.wantEndedWatch(c.watch(a, "q", p), "removal of the queue, with another node that has the name now")
			c.wantNodes("after Watch", c.listAfterWrite(b, "q"), stay...)
			c.removeQueue("q")
		}
	})},
	{name: "watch-by-name-is-of-the-node-that-has-it", why: whyOwn, needs: needRemoveQueue, run: pair(func(c *check, a, b session) {
		p, behind := c.create(a, "q", writer), c.create(b, "q", writer)
		c.removeQueue("q")
		again, now := c.create(a, "q", writer), c.create(b, "q", writer)
		if again.Name != p.Name || now.Name != behind.Name {
			c.logf("names do not come again: %s was followed by %s", p.Name, again.Name)
			p, behind = again, now
		}
		own, ahead := c.watch(a, "q", named(p)), c.watch(b, "q", named(behind), p.Node)
		c.delete(a, "q", again)
		c.wantUnreleasedEnd(own, "Delete of the own node that has the name now")
		c.wantUnreleasedEnd(ahead, "Delete of the node ahead that has the name now")
	})},
	{name: "watch-by-name-of-another-session's-node", why: whyOther, run: endsWatchByName(deleted, released, closes)},
	{name: "watch-by-name-of-another-session's-node-that-is-replaced", why: whyOther, run: endsWatchByName(replaced)},
	{name: "watch-by-name-of-another-session's-node-whose-session-expires", why: whyOther, needs: needDrop, run: endsWatchByName(expires)},
	{name: "watch-of-a-node-whose-session-closes", why: whyWatch, run: endsWatches(closes)},
	{name: "watch-of-a-node-whose-session-expires", why: whyWatch, needs: needDrop, run: endsWatches(expires)},
	{name: "watch-of-a-node-removed-by-an-operator", why: whyWatch, needs: needRemoveNode, run: endsWatches(nodeRemoved)},
	{name: "watch-of-a-node-whose-queue-is-removed", why: whyWatch, needs: needRemoveQueue, run: endsWatches(queueRemoved)},
	{name: "watch-of-a-node-whose-name-comes-again", why: whyWatch, needs: needRemoveQueue, run: pair(func(c *check, a, b session) {
		p, q := c.create(a, "q", writer), c.create(b, "q", writer)
		watches := []driver.Watch{
			c.watch(a, "q", p), c.watch(a, "q", named(p)), c.watch(b, "q", q, p.Node), c.watch(b, "q", named(q), p.Node),
		}
		c.removeQueue("q")
		again := []driver.Place{c.create(b, "q", writer), c.create(b, "q", writer)}
		wantUnreleasedEnds(c, watches, "the queue was removed and made again (%s and %s were followed by %v)", p.Name, q.Name, nodesOf(again))
	})},
	{name: "watch-of-a-node-that-is-replaced", why: whyDowngrade, run: watchReplaced},
	{name: "a-deletion-while-the-watching-session-was-cut-off-is-not-missed", why: whyWatch, needs: needCutOff,
		run: pair(func(c *check, a, b session) {
			stays := c.create(a, "q", writer)
			_, after := c.waitFor(b, "q", stays.Node)
			goes, watches := nodeWithWatches(c, a, b)
			heal := c.cutOff(b)
			c.delete(a, "q", goes)
			heal()
			wantUnreleasedEnds(c, watches, "Delete of the node while the watching session was cut off")
			c.delete(a, "q", stays)
			c.wantUnreleasedEnd(after, "Delete of the node ahead after the watching session had been cut off for a while")
		})},
	{name: "a-deletion-after-the-connection-broke-is-not-missed", why: whyWatch, needs: needReset, run: pair(func(c *check, a, b session) {
		for range 3 {
			first, second := c.create(a, "q", writer), c.create(a, "q", writer)
			j := c.join(b, "q", reader, last)
			if j.Watch.C == nil {
				j.Watch = c.watch(b, "q", j.Place, second.Node)
			}
			atOnce := c.watch(b, "q", j.Place, first.Node)
			later := []driver.Watch{j.Watch, c.watch(b, "q", j.Place), c.watchQueue(b, "other")}
			c.reset(b)
			c.delete(a, "q", first)
			c.wantUnreleasedEnd(atOnce, "Delete of the node ahead right after the connection of the watching session broke")
			if _, ok := createUnlessEnded(c, b, "measure", writer); ok { // success: the driver has reconnected
				c.delete(a, "q", second)
				c.create(a, "other", writer)
				repeatDelete(c, b, "q", j.Place, driver.Changed)
			}
			wantUnreleasedEnds(c, later, "Delete of the node ahead, Delete of the own node, "+
				"and Create in the queue other, after the watching session had connected again")
			if c.endedWithConnection(b) {
				return
			}
		}
	})},
	{name: "a-deletion-whose-notice-is-lost-is-not-missed", why: whyWatch, needs: needSilenceNotices, run: pair(func(c *check, a, b session) {
		// No queue is watched, because that might make the driver poll.
		p := c.create(a, "q", writer)
		q, w := c.waitFor(b, "q", p.Node)
		watches := []driver.Watch{w, c.watch(b, "q", named(q), p.Node)}
		c.silenceNotices(b)
		c.delete(a, "q", p)
		wantUnreleasedEnds(c, watches, "Delete of the node ahead while no notice reached the watching session")
	})},
	{name: "a-creation-whose-notice-is-lost-is-not-missed", why: whyAny, needs: needSilenceNotices, run: pair(func(c *check, a, b session) {
		watches := []driver.Watch{c.watchQueue(b, "q")}
		c.silenceNotices(b)
		watches = append(watches, c.watchQueue(b, "q"), c.watchQueue(b, "other"))
		c.create(a, "q", writer)
		c.create(a, "other", writer)
		wantUnreleasedEnds(c, watches, "Create in the queue while no notice reached the watching session")
	})},
	{name: "a-watch-armed-while-notices-are-lost-misses-no-deletion", why: whyWatch, needs: needSilenceNotices, run: armInSilence(watchAhead)},
	{name: "a-watch-armed-by-create-while-notices-are-lost-misses-no-deletion", why: whyWatch, needs: needSilenceNotices | needArmed,
		run: armInSilence(createArmed)},
	{name: "many-watches-of-one-node", why: whyWatch, run: pair(func(c *check, a, b session) {
		p, watches := nodeWithWatches(c, a, b)
		for range 30 {
			_, w := c.waitFor(b, "q", p.Node)
			watches = append(watches, w, c.watch(a, "q", p), c.watchQueue(b, "q"))
		}
		c.delete(a, "q", p)
		wantUnreleasedEnds(c, watches, "Delete of the node")
	})},
	{name: "the-ctx-of-watch-is-for-the-call-only", why: whyCtxOf, run: ctxEndsAfterCall(watchBoth)},
	{name: "the-ctx-of-create-is-for-the-call-only", why: whyCtxOf, needs: needArmed, run: ctxEndsAfterCall(createArmed)},
	{name: "stop-takes-no-other-watch-with-it", why: whyWatch, run: pair(func(c *check, a, b session) {
		// A driver may free a stopped watch only after one of these pauses.
		for _, pause := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
			p := c.create(a, "q", writer)
			q, first := c.waitFor(b, "q", p.Node)
			self := c.watch(b, "q", q)
			stopped, stoppedQueue := c.watch(b, "q", q, p.Node), c.watchQueue(b, "q")
			queue := c.watchQueue(b, "q")
			stopped.Stop()
			stoppedQueue.Stop()
			time.Sleep(pause)
			last := c.watch(b, "q", q, p.Node)
			c.delete(a, "q", p)
			c.wantUnreleasedEnd(first, "Delete of the node ahead (armed before another watch that was stopped)")
			c.wantUnreleasedEnd(queue, "Delete of a node of the queue (armed before another watch was stopped)")
			c.wantUnreleasedEnd(last, "Delete of the node ahead (armed after another watch was stopped)")
			c.delete(b, "q", q)
			c.wantUnreleasedEnd(self, "Delete of the own node (armed before another watch that was stopped)")
		}
	})},
	{name: "stop-may-be-repeated-at-any-time", why: "callers stop a watch with defer, also a watch that has ended", run: pair(func(c *check, a, b session) {
		c.rounds(30, func(int) {
			p, q := c.create(a, "q", writer), c.create(b, "q", writer)
			stopped := []driver.Watch{c.watch(b, "q", q, p.Node), c.watchQueue(b, "q"), {}}
			live := c.watch(b, "q", q, p.Node)
			stop := func() {
				for _, w := range stopped {
					w.Stop()
				}
			}
			c.atOnce(func() { c.delete(a, "q", p) }, stop, stop, stop)
			c.wantUnreleasedEnd(live, "Delete of the node ahead while other watches of it were stopped")
			live.Stop()
			live.Stop()
			stop()
			c.delete(b, "q", q)
		})
		w := c.watchQueue(b, "q")
		c.close(b)
		w.Stop()
	})},
	{name: "stop-does-not-block-while-cut-off", why: "a Lock whose ctx ends would not return before the store can be reached again",
		needs: needCutOff, run: func(c *check) {
			for of := range inEveryTry(func() map[string]bool {
				s := c.session()
				watches := map[string]driver.Watch{"a node": c.watch(s, "q", c.create(s, "q", writer)), "a queue": c.watchQueue(s, "q")}
				c.cutOff(s)
				slow := make(map[string]bool)
				for of, w := range watches {
					begin := time.Now()
					if w.Stop(); time.Since(begin) > c.config.sessionTimeout()/4 {
						slow[of] = true
					}
				}
				return slow
			}) {
				c.errorf("Stop of a watch of %s took more than a quarter of the session timeout while the session was cut off, in every try: expected it not to block", of)
			}
		}},
	{name: "watch-of-a-queue-sees-a-creation", why: whyAny, run: queueSees(created)},
	{name: "watch-of-a-queue-sees-a-deletion", why: whyWatch, run: queueSees(deleted)},
	{name: "watch-of-a-queue-sees-a-node-that-came-and-went", why: whyAny, run: queueSees(cameAndWent)},
	{name: "watch-of-a-queue-sees-changes-of-the-only-session", why: whyAny, run: solo(func(c *check, s session) {
		// No other session exists, because with its requests, the driver might
		// notice the change by chance.
		for range 2 {
			w := c.watchQueue(s, "q")
			p := c.create(s, "q", writer)
			c.wantUnreleasedEnd(w, "Create by the only session")
			w = c.watchQueue(s, "q")
			c.delete(s, "q", p)
			c.wantUnreleasedEnd(w, "Delete by the only session")
		}
	})},
	{name: "watch-of-a-queue-sees-a-session-close", why: whyWatch, run: queueSees(closes)},
	{name: "watch-of-a-queue-sees-its-removal", why: whyWatch, needs: needRemoveQueue, run: queueSees(queueRemoved)},
	{name: "watch-of-a-queue-sees-a-replacement", why: whyDowngrade, run: queueSees(replaced)},
	{name: "watch-of-a-queue-sees-a-replacement-that-was-undone", why: whyAny, run: queueSees(replacedBack)},
	{name: "a-list-after-the-arming-misses-no-change", why: whyWatch, run: pair(func(c *check, a, b session) {
		c.rounds(150, func(int) {
			var p driver.Place
			var w driver.Watch
			var nodes []driver.Node
			look := func() {
				w = c.watchQueue(b, "q")
				nodes = c.list(b, "q")
			}
			c.atOnce(func() { p = c.create(a, "q", writer) }, look)
			if !has(nodes, p.Node) {
				c.wantUnreleasedEnd(w, "Create of %s, which the List after the watch did not show", p.Name)
			}
			c.atOnce(func() { c.delete(a, "q", p) }, look)
			if has(nodes, p.Node) {
				c.wantUnreleasedEnd(w, "Delete of %s, which the List after the watch still showed", p.Name)
			}
		})
	})},
	{name: "a-deletion-that-meets-the-arming-is-not-missed", why: whyWatch, run: watchMeetsDelete(driver.Changed)},
	{name: "the-close-of-a-session-closes-its-watches", why: whyOver, run: watchesEnd(closes)},
	{name: "the-expiry-of-a-session-closes-its-watches", why: whyOver, needs: needDrop, run: watchesEnd(expires)},
	{name: "a-session-cut-off-closes-its-watches", why: whyOver, needs: needCutOff, run: watchesEnd(cutOff)},
}

// endsWithAny watches n nodes, the last of which is the session's own. Deleting
// a node with any of the indices must end the watch.
func endsWithAny(n int, indices ...int) func(*check) {
	return pair(func(c *check, a, b session) {
		for _, i := range indices {
			owners := slices.Repeat([]session{a}, n)
			owners[n-1] = b
			var places []driver.Place
			for _, s := range owners {
				places = append(places, c.create(s, "q", reader))
			}
			w := c.watch(b, "q", places[n-1], nodesOf(places[:n-1])...)
			c.delete(owners[i], "q", places[i])
			c.wantUnreleasedEnd(w, "Delete of %s, with index %d of the nodes %v of the watch", places[i].Name, i, nodesOf(places))
			w.Stop()
			for k, p := range places {
				if k != i {
					c.delete(owners[k], "q", p)
				}
			}
		}
	})
}

// arming creates a node, and arms watches of it and of the node ahead.
type arming func(c *check, ctx context.Context, s session, ahead driver.Node) (own driver.Place, watches []driver.Watch)

func watchAhead(c *check, _ context.Context, s session, ahead driver.Node) (driver.Place, []driver.Watch) {
	own, w := c.waitFor(s, "q", ahead)
	return own, []driver.Watch{w}
}

func watchBoth(c *check, ctx context.Context, s session, ahead driver.Node) (driver.Place, []driver.Watch) {
	own := c.create(s, "q", writer)
	nodes := ask(c, "Watch", func() (driver.Watch, error) { return s.Watch(ctx, "q", own, ahead) })
	return own, []driver.Watch{nodes, ask(c, "WatchQueue", func() (driver.Watch, error) { return s.WatchQueue(ctx, "q") })}
}

func createArmed(c *check, ctx context.Context, s session, _ driver.Node) (driver.Place, []driver.Watch) {
	j := ask(c, "Create", func() (driver.Joined, error) { return tryJoin(ctx, s, "q", writer, last) })
	if j.Watch.C == nil {
		return j.Place, nil
	}
	return j.Place, []driver.Watch{j.Watch}
}

// armInSilence returns a case in which a session arms a watch but gets no
// notices. The session has used this or another queue before.
func armInSilence(arm arming) func(*check) {
	return solo(func(c *check, a session) {
		for _, followed := range []string{"q", "other"} {
			b := c.session()
			c.waitFor(b, followed, c.create(a, followed, writer).Node)
			c.silenceNotices(b)
			p := c.create(a, "q", writer)
			_, watches := arm(c, c.ctx, b, p.Node)
			c.delete(a, "q", p)
			wantUnreleasedEnds(c, watches,
				"Create and Delete of the node ahead while no notice reached the watching session, which had followed the queue %s", followed)
		}
	})
}

// ctxEndsAfterCall requires that watches outlive the ctx of the call that armed
// them. They may end early now and then, but not in every round.
func ctxEndsAfterCall(arm arming) func(*check) {
	return pair(func(c *check, a, b session) {
		early, armed := 0, 0
		for range 5 {
			p := c.create(a, "q", writer)
			ctx, cancel := context.WithCancel(c.ctx)
			own, watches := arm(c, ctx, b, p.Node)
			cancel()
			if len(watches) > 0 {
				armed++
			}
			if slices.ContainsFunc(watches, c.endsEarly) {
				early++
			}
			c.delete(a, "q", p)
			wantUnreleasedEnds(c, watches, "Delete of the node ahead, after the ctx had ended of the call that armed the watch")
			c.delete(b, "q", own)
		}
		if armed > 0 && early == armed {
			c.errorf("in %d rounds of %d a watch ended with the ctx of the call that had armed it, expected it to go on", early, armed)
		}
	})
}

func watchesEnd(end event) func(*check) {
	return pair(func(c *check, s, other session) {
		p, own := c.create(other, "q", writer), c.create(s, "q", reader)
		var watches []driver.Watch
		for range 3 {
			watches = append(watches, c.watch(s, "q", own), c.watch(s, "q", own, p.Node), c.watchQueue(s, "q"), c.watchQueue(s, "missing"))
		}
		c.create(s, "armed", writer)
		if j := c.join(s, "armed", writer, last); j.Watch.C != nil {
			watches = append(watches, j.Watch)
		}
		end.play(c, s, own)
		wantUnreleasedEnds(c, watches, "%s, which is the session of the watches", end)
	})
}
