package dlocktest

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const whyWatch = "a contender that waits for this node would wait for ever, and everybody behind it"

var watchCases = []testCase{
	{name: "watch-of-a-node-that-is-deleted", why: whyWatch, run: watchDeleted},
	{name: "watch-of-a-node-deleted-before-arming", why: whyWatch, run: watchAlreadyGone},
	{name: "watch-of-a-node-that-never-was", why: whyWatch, run: watchNeverWas},
	{name: "watch-in-a-missing-queue", why: whyWatch, run: watchMissingQueue},
	{name: "watch-of-one's-own-node", why: "a holder whose node goes would not notice that it lost the lock", run: watchOwn},
	{name: "watch-of-a-node-whose-session-closes", why: whyWatch, run: watchOwnerCloses},
	{name: "watch-of-a-node-whose-session-expires", why: whyWatch, needs: needExpire, run: watchOwnerExpires},
	{name: "watch-of-a-node-whose-session-is-cut-off", why: whyWatch, needs: needCutOff, run: watchOwnerCutOff},
	{name: "watch-of-a-node-removed-by-an-operator", why: whyWatch, needs: needRemoveNode, run: watchNodeRemoved},
	{name: "watch-of-a-node-whose-queue-is-removed", why: whyWatch, needs: needRemoveQueue, run: watchQueueRemoved},
	{name: "watch-of-a-node-whose-name-comes-again", why: whyWatch, needs: needRemoveQueue, run: watchNameComesAgain},
	{name: "watch-of-a-node-that-is-replaced", why: "a reader behind a writer that downgrades would not be let in",
		needs: needReplacer, run: watchReplaced},
	{name: "a-deletion-while-the-watching-session-was-cut-off-is-not-missed", why: whyWatch, needs: needCutOff, run: watchAcrossCut},
	{name: "many-watches-of-one-node", why: whyWatch, run: watchMany},
	{name: "a-watch-whose-ctx-ended-takes-no-other-with-it", why: whyWatch, run: watchCtxEnded},
	{name: "watch-of-a-queue-sees-a-creation", why: "who waits for any change would miss this one", run: watchSeesCreation},
	{name: "watch-of-a-queue-sees-the-first-creation", why: "who waits for any change would miss this one", run: watchSeesFirstCreation},
	{name: "watch-of-a-queue-sees-a-deletion", why: whyWatch, run: watchSeesDeletion},
	{name: "watch-of-a-queue-sees-a-node-that-came-and-went", why: "who waits for any change would miss this one", run: watchSeesVisitor},
	{name: "watch-of-a-queue-sees-a-session-close", why: whyWatch, run: watchSeesClose},
	{name: "watch-of-a-queue-sees-its-removal", why: whyWatch, needs: needRemoveQueue, run: watchSeesRemoval},
	{name: "watch-of-a-queue-sees-a-replacement", why: "a reader behind a writer that downgrades would not be let in",
		needs: needReplacer, run: watchSeesReplacement},
	{name: "armed-first-listed-then-nothing-is-missed", why: whyWatch, run: watchThenList},
	{name: "a-deletion-that-meets-the-arming-is-not-missed", why: whyWatch, run: watchMeetsDelete},
	{name: "no-wake-up-is-missed-in-a-queue-of-contenders", why: whyWatch, run: watchChain},
	{name: "the-close-of-a-session-closes-its-watches", why: "who waits would not learn that its session is over and its node gone", run: watchesCloseWithSession},
	{name: "the-expiry-of-a-session-closes-its-watches", why: "who waits would not learn that its session is over and its node gone",
		needs: needExpire, run: watchesCloseWithExpiry},
	{name: "a-session-cut-off-closes-its-watches", why: "who waits would not learn that its session is over and its node gone",
		needs: needCutOff, run: watchesCloseWithCutOff},
	{name: "a-quiet-queue-leaves-its-watches-open", why: "who waits would list the queue again and again, as fast as it can", run: watchQuiet},
}

func watchDeleted(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	w := c.watch(b, "q", p.Name)
	c.delete(a, "q", p)
	c.closesUnreleased(w, "Delete of the node")
}

func watchAlreadyGone(c *check) {
	a, b := c.twoSessions()
	c.create(b, "q", reader) // the queue stays
	p := c.create(a, "q", writer)
	c.delete(a, "q", p)
	c.closesUnreleased(c.watch(a, "q", p.Name), "Delete of the node, before the watch was armed")
	c.settled(b, "q")
	c.closesUnreleased(c.watch(b, "q", p.Name), "Delete of the node by another session, before the watch was armed")
}

func watchNeverWas(c *check) {
	s := c.session()
	p := c.create(s, "q", writer)
	for _, name := range []string{driver.FormatName(writer, p.Seq+100), driver.FormatName("web9-W-", p.Seq), "nonsense"} {
		c.closesUnreleased(c.watch(s, "q", name), "it was armed on %q, which never was", name)
	}
}

func watchMissingQueue(c *check) {
	s := c.session()
	c.closesUnreleased(c.watch(s, "never/was", "web1-W-0000000000"), "it was armed on a node of a queue that is missing")
}

func watchOwn(c *check) {
	s := c.session()
	p := c.create(s, "q", writer)
	w := c.watch(s, "q", p.Name)
	c.delete(s, "q", p)
	c.closesUnreleased(w, "Delete of the node by the watching session")
}

func watchOwnerCloses(c *check) {
	a, b := c.twoSessions()
	w := c.watch(b, "q", c.create(a, "q", writer).Name)
	c.close(a)
	c.closesUnreleased(w, "Close of the node's session")
}

func watchOwnerExpires(c *check) {
	a, b := c.twoSessions()
	w := c.watch(b, "q", c.create(a, "q", writer).Name)
	c.expire(a)
	c.closesUnreleased(w, "expiry of the node's session")
}

func watchOwnerCutOff(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.cutOff(a)
	waitGone(c, b, "q", p.Node)
}

// waitGone waits as a contender does until a node is gone.
func waitGone(c *check, s driver.Session, queue string, n driver.Node) {
	for {
		c.alive()
		w := c.watch(s, queue, n.Name)
		if !has(c.list(s, queue), n) {
			return
		}
		c.closesUnreleased(w, "the end of %s", n.Name)
	}
}

func watchNodeRemoved(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	own, other := c.watch(a, "q", p.Name), c.watch(b, "q", p.Name)
	c.removeNode("q", p.Name)
	c.closesUnreleased(own, "an operator removed the node of its own session")
	c.closesUnreleased(other, "an operator removed the node")
}

func watchQueueRemoved(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	own, other := c.watch(a, "q", p.Name), c.watch(b, "q", p.Name)
	c.removeQueue("q")
	c.closesUnreleased(own, "an operator removed the queue with the node of its own session")
	c.closesUnreleased(other, "an operator removed the queue")
}

func watchNameComesAgain(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	own, other := c.watch(a, "q", p.Name), c.watch(b, "q", p.Name)
	c.removeQueue("q")
	again := c.create(b, "q", writer)
	c.closesUnreleased(own, "the queue was removed and made again (%s was followed by %s)", p.Name, again.Name)
	c.closesUnreleased(other, "the queue was removed and made again (%s was followed by %s)", p.Name, again.Name)
}

func watchReplaced(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	own, other := c.watch(a, "q", p.Name), c.watch(b, "q", p.Name)
	now := c.replace(a, "q", p, "web1-R-")
	c.closesUnreleased(own, "Replace of the node by its own session")
	c.closesUnreleased(other, "Replace of the node")
	c.closesUnreleased(c.watch(a, "q", p.Name), "it was armed on a name that had been replaced")
	w := c.watch(b, "q", now.Name)
	c.delete(a, "q", now)
	c.closesUnreleased(w, "Delete of the node under its new name")
}

// watchAcrossCut lets the line of the watching session break while it watches. If the session
// does not survive that, its watches close with it.
func watchAcrossCut(c *check) {
	a, b := c.twoSessions()
	stays, goes := c.create(a, "q", writer), c.create(a, "q", writer)
	before, after := c.watch(b, "q", goes.Name), c.watch(b, "q", stays.Name)
	heal := c.cutOff(b)
	c.delete(a, "q", goes)
	heal()
	c.closesUnreleased(before, "Delete of the node while the watching session was cut off")
	c.delete(a, "q", stays)
	c.closesUnreleased(after, "Delete of the node after the watching session had been cut off for a while")
}

func watchMany(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	var watches []<-chan driver.Cause
	for range 30 {
		watches = append(watches, c.watch(a, "q", p.Name), c.watch(b, "q", p.Name), c.watch(b, "q", ""))
	}
	c.delete(a, "q", p)
	for i, w := range watches {
		c.closesUnreleased(w, "Delete of the node (watch %d of %d)", i+1, len(watches))
	}
}

// watchCtxEnded gives the driver more and more time to let go of what it must keep.
func watchCtxEnded(c *check) {
	a, b := c.twoSessions()
	for _, pause := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
		p := c.create(a, "q", writer)
		ctx, cancel := context.WithCancel(c.ctx)
		first := c.watch(b, "q", p.Name)
		c.watchUntil(ctx, b, "q", p.Name)
		c.watchUntil(ctx, b, "q", "")
		queue := c.watch(b, "q", "")
		cancel()
		time.Sleep(pause)
		last := c.watch(b, "q", p.Name)
		c.delete(a, "q", p)
		c.closesUnreleased(first, "Delete of the node (armed before another watch whose ctx ended)")
		c.closesUnreleased(queue, "Delete of a node of the queue (armed before the end of another watch's ctx)")
		c.closesUnreleased(last, "Delete of the node (armed after the end of another watch's ctx)")
	}
}

func watchSeesCreation(c *check) {
	a, b := c.twoSessions()
	c.create(b, "q", writer)
	own, other := c.watch(a, "q", ""), c.watch(b, "q", "")
	c.create(a, "q", reader)
	c.closesUnreleased(own, "Create by its own session")
	c.closesUnreleased(other, "Create by another session")
}

func watchSeesFirstCreation(c *check) {
	a, b := c.twoSessions()
	w := c.watch(b, "new/queue", "")
	c.create(a, "new/queue", writer)
	c.closesUnreleased(w, "Create of the first node of the queue")
}

func watchSeesDeletion(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	own, other := c.watch(a, "q", ""), c.watch(b, "q", "")
	c.delete(a, "q", p)
	c.closesUnreleased(own, "Delete by its own session")
	c.closesUnreleased(other, "Delete by another session")
}

func watchSeesVisitor(c *check) {
	a, b := c.twoSessions()
	c.create(b, "q", writer)
	for range 5 {
		own, other := c.watch(a, "q", ""), c.watch(b, "q", "")
		c.delete(a, "q", c.create(a, "q", reader))
		c.closesUnreleased(own, "Create and Delete by its own session")
		c.closesUnreleased(other, "Create and Delete by another session")
	}
}

func watchSeesClose(c *check) {
	a, b := c.twoSessions()
	c.create(a, "q", writer)
	w := c.watch(b, "q", "")
	c.close(a)
	c.closesUnreleased(w, "Close of a session that had a node in the queue")
}

func watchSeesRemoval(c *check) {
	a, b := c.twoSessions()
	c.create(a, "q", writer)
	w := c.watch(b, "q", "")
	c.removeQueue("q")
	c.closesUnreleased(w, "removal of the queue, which had a node")
}

func watchSeesReplacement(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	w := c.watch(b, "q", "")
	c.replace(a, "q", p, "web1-R-")
	c.closesUnreleased(w, "Replace of a node of the queue")
}

// watchThenList: what the list does not show yet, the watch must.
func watchThenList(c *check) {
	a, b := c.twoSessions()
	for range 150 {
		var p driver.Place
		var w <-chan driver.Cause
		var nodes []driver.Node
		c.together(2, func(i int) {
			if i == 0 {
				p = c.create(a, "q", writer)
				return
			}
			w = c.watch(b, "q", "")
			nodes = c.list(b, "q")
		})
		if !has(nodes, p.Node) {
			c.closesUnreleased(w, "Create of %s, which the List after the watch did not show", p.Name)
		}
		c.together(2, func(i int) {
			if i == 0 {
				c.delete(a, "q", p)
				return
			}
			w = c.watch(b, "q", "")
			nodes = c.list(b, "q")
		})
		if has(nodes, p.Node) {
			c.closesUnreleased(w, "Delete of %s, which the List after the watch still showed", p.Name)
		}
	}
}

func watchMeetsDelete(c *check) {
	a, b := c.twoSessions()
	for i := range 300 {
		p := c.create(a, "q", writer)
		watches := make([]<-chan driver.Cause, 3)
		c.together(4, func(i int) {
			if i == 3 {
				c.delete(a, "q", p)
				return
			}
			watches[i] = c.watch([]driver.Session{a, b}[i%2], "q", p.Name)
		})
		for _, w := range watches {
			c.closesUnreleased(w, "Delete of the node while the watch was being armed (round %d)", i)
		}
	}
}

// watchChain lets contenders queue as recipes do: each waits for the node before its own.
func watchChain(c *check) {
	c.together(4, func(i int) {
		s := c.session()
		for range 25 {
			p := c.create(s, "q", fmt.Sprintf("h%d-W-", i))
			for {
				before, ok := predecessor(c, c.list(s, "q"), p.Node)
				if !ok {
					break
				}
				c.closesUnreleased(c.watch(s, "q", before.Name), "the end of %s, which %s waits for", before.Name, p.Name)
			}
			c.delete(s, "q", p)
		}
	})
}

func predecessor(c *check, nodes []driver.Node, own driver.Node) (before driver.Node, ok bool) {
	for _, n := range nodes {
		if n == own {
			return before, ok
		}
		before, ok = n, true
	}
	c.fatalf("List returned %v, expected %v of a living session in it", nodes, own)
	return before, false
}

// openWatches arms watches that nothing but the end of their session closes.
func openWatches(c *check, s driver.Session) (watches []<-chan driver.Cause) {
	other := c.session()
	p := c.create(other, "q", writer)
	own := c.create(s, "q", reader)
	for range 3 {
		watches = append(watches,
			c.watchUntil(context.Background(), s, "q", p.Name),
			c.watchUntil(context.Background(), s, "q", own.Name),
			c.watchUntil(context.Background(), s, "q", ""),
			c.watchUntil(context.Background(), s, "missing", ""))
	}
	return watches
}

func allClose(c *check, watches []<-chan driver.Cause, after string) {
	for i, w := range watches {
		c.closesUnreleased(w, "%s (watch %d of %d)", after, i+1, len(watches))
	}
}

func watchesCloseWithSession(c *check) {
	s := c.session()
	watches := openWatches(c, s)
	c.close(s)
	allClose(c, watches, "Close of the session")
}

func watchesCloseWithExpiry(c *check) {
	s := c.session()
	watches := openWatches(c, s)
	c.expire(s)
	allClose(c, watches, "the session expired")
}

func watchesCloseWithCutOff(c *check) {
	s := c.session()
	watches := openWatches(c, s)
	c.cutOff(s)
	c.ends(s, "the session was cut off")
	allClose(c, watches, "the session was cut off and ended")
}

// watchQuiet only notes what it sees: a watch may close early. But the next
// change must still be seen.
func watchQuiet(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	const n = 20
	var early int
	for range n {
		w := c.watch(b, "q", p.Name)
		select {
		case <-w:
			early++
		case <-time.After(2 * time.Millisecond):
		}
	}
	c.logf("%d of %d watches closed early in a quiet queue", early, n)
	if early == n {
		c.logf("note: every watch closed at once; the contract allows it, but waiting then means listing without a pause")
	}
	w := c.watch(b, "q", p.Name)
	c.delete(a, "q", p)
	c.closesUnreleased(w, "Delete of the node")
}
