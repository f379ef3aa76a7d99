package dlocktest

import (
	"errors"

	"github.com/dlock-go/dlock/driver"
)

const (
	whyReleased = "who receives Released enters without listing the queue: sent for anything else, it lets two in"
	whyPlace    = "who believes that its own node stands enters when the node before it is released: without a node, beside others"
	whyRelease  = "the lock would stay locked although its holder unlocked it"
)

var releaseCases = []testCase{
	{name: "release-removes-the-node", why: whyRelease, needs: needReleaser, run: releaseRemoves},
	{name: "release-closes-the-watches", why: whyWatch, needs: needReleaser, run: releaseWatched},
	{name: "a-release-that-meets-the-arming-is-not-missed", why: whyWatch, needs: needReleaser, run: releaseMeetsArming},
	{name: "a-release-of-a-node-that-is-gone-says-so", why: whyGone, needs: needReleaser, run: releaseGone},
	{name: "a-reply-lost-can-be-repeated", why: whyRelease, needs: needReleaser | needLoseReply, run: releaseLosesReply},
	{name: "a-late-release-spares-a-node-that-took-the-name", why: whyStale, needs: needReleaser | needRemoveQueue, run: releaseSparesNamesake},
	{name: "delete-is-not-released", why: whyReleased, needs: needReleaser, run: deleteIsNotReleased},
	{name: "a-node-gone-before-is-not-released", why: whyReleased, needs: needReleaser, run: goneIsNotReleased},
	{name: "replace-is-not-released", why: whyReleased, needs: needReleaser | needReplacer, run: replaceIsNotReleased},
	{name: "close-is-not-released", why: whyReleased, needs: needReleaser, run: closeIsNotReleased},
	{name: "expiry-is-not-released", why: whyReleased, needs: needReleaser | needExpire, run: expiryIsNotReleased},
	{name: "an-operator's-removal-is-not-released", why: whyReleased, needs: needReleaser | needRemoveNode, run: operatorIsNotReleased},
	{name: "the-removal-of-a-queue-is-not-released", why: whyReleased, needs: needReleaser | needRemoveQueue, run: queueRemovalIsNotReleased},
	{name: "a-reconnect-is-not-released", why: whyReleased, needs: needReleaser | needCutOff, run: reconnectIsNotReleased},
	{name: "a-release-of-another-node-is-not-released", why: whyReleased, needs: needReleaser, run: otherReleaseIsNotReleased},
	{name: "released-comes-after-earlier-removals",
		why:   "who is woken by Released and whose own node was taken away before would enter without a node",
		needs: needReleaser, run: releasedInOrder},
	{name: "the-watch-of-a-place-ends-with-its-node", why: whyPlace, needs: needReleaser, run: placeEnds},
	{name: "the-watch-of-a-place-that-is-gone-closes", why: whyPlace, needs: needReleaser, run: placeGone},
	{name: "the-watch-of-a-place-is-not-that-of-a-node-that-took-the-name", why: whyPlace, needs: needReleaser | needRemoveQueue, run: placeOfNamesake},
}

func releaseErr(c *check, s driver.Session, queue string, p driver.Place) error {
	return s.(driver.Releaser).Release(c.ctx, queue, p)
}

func releaseRemoves(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	stays := c.create(b, "q", writer)
	c.release(a, "q", p)
	c.wantNodes("its own session after Release", c.list(a, "q"), stays.Node)
	c.wantNodes("another session after Release", c.settled(b, "q"), stays.Node)
}

func releaseWatched(c *check) {
	a, b := c.twoSessions()
	var sent int
	for range 10 {
		p := c.create(a, "q", writer)
		own, first, second, queue := c.watch(a, "q", p.Name), c.watch(b, "q", p.Name), c.watch(b, "q", p.Name), c.watch(b, "q", "")
		c.release(a, "q", p)
		for _, w := range []<-chan driver.Cause{own, first, second} {
			if c.closes(w, "Release of the node") {
				sent++
			}
		}
		c.closes(queue, "Release of a node of the queue")
	}
	c.logf("%d of 30 watches sent Released", sent)
}

func releaseMeetsArming(c *check) {
	a, b := c.twoSessions()
	for i := range 150 {
		p := c.create(a, "q", writer)
		var w <-chan driver.Cause
		c.together(2, func(i int) {
			if i == 0 {
				c.release(a, "q", p)
			} else {
				w = c.watch(b, "q", p.Name)
			}
		})
		c.closes(w, "Release of the node while the watch was being armed (round %d)", i)
	}
}

func releaseGone(c *check) {
	s := c.session()
	p := c.create(s, "q", writer)
	c.release(s, "q", p)
	c.wantGone("Release", releaseErr(c, s, "q", p))
	c.wantGone("Delete", s.Delete(c.ctx, "q", p))
	p = c.create(s, "q", writer)
	c.delete(s, "q", p)
	c.wantGone("Release", releaseErr(c, s, "q", p))
}

func releaseLosesReply(c *check) {
	a, b := c.twoSessions()
	stays := c.create(b, "q", writer)
	for i := range 4 {
		p := c.create(a, "q", writer)
		w := c.watch(b, "q", p.Name)
		c.loseReply(a, OpRelease, i%2 == 0)
		doubtfulDelete(c, a, c.ctx, releaseErr(c, a, "q", p))
		if i < 2 {
			repeatDelete(c, a, "q", p)
		} else {
			c.eventually(func() bool {
				err := releaseErr(c, a, "q", p)
				return err == nil || errors.Is(err, driver.ErrGone) || a.Err() != nil
			}, "a repeated Release returns success or ErrGone")
		}
		c.closes(w, "Release whose reply was lost, and its repeat")
		vanish(c, b, "q", "a Release that was repeated after a lost reply", stays.Node)
		if a.Err() != nil {
			c.logf("the session ended with its connection: %v", a.Err())
			return
		}
	}
}

func releaseSparesNamesake(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.release(a, "q", p)
	c.removeQueue("q")
	stay := namesakes(c, a, b, "q", p.Node)
	w := c.watch(a, "q", stay[0].Name)
	c.wantGone("a repeated Release", releaseErr(c, a, "q", p))
	c.wantNodes("after Release was repeated", c.settled(b, "q"), stay...)
	c.close(b)
	c.closesUnreleased(w, "Close of its session, and an earlier Release of a node of the same name")
}

// watched makes a node of a, watched by everybody.
func watched(c *check, a, b driver.Session) (driver.Place, []<-chan driver.Cause) {
	p := c.create(a, "q", writer)
	return p, []<-chan driver.Cause{c.watch(a, "q", p.Name), c.watch(b, "q", p.Name), c.watch(b, "q", p.Name), c.watch(b, "q", "")}
}

func deleteIsNotReleased(c *check) {
	a, b := c.twoSessions()
	for range 10 {
		p, watches := watched(c, a, b)
		c.delete(a, "q", p)
		allClose(c, watches, "Delete of the node")
	}
}

func goneIsNotReleased(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.delete(a, "q", p)
	for _, s := range []driver.Session{a, b} {
		c.settled(s, "q")
		c.closesUnreleased(c.watch(s, "q", p.Name), "it was armed on a node that had been deleted")
	}
}

func replaceIsNotReleased(c *check) {
	a, b := c.twoSessions()
	p, watches := watched(c, a, b)
	now := c.replace(a, "q", p, shared)
	allClose(c, watches, "Replace of the node")
	w := c.watch(b, "q", now.Name)
	c.delete(a, "q", p)
	c.closesUnreleased(w, "Delete of a node that had been replaced")
}

func closeIsNotReleased(c *check) {
	a, b := c.twoSessions()
	_, watches := watched(c, a, b)
	c.close(a)
	allClose(c, watches, "Close of the node's session")
}

func expiryIsNotReleased(c *check) {
	a, b := c.twoSessions()
	_, watches := watched(c, a, b)
	c.expire(a)
	allClose(c, watches, "expiry of the node's session")
	c.ends(a, "the store ended the session")
}

func operatorIsNotReleased(c *check) {
	a, b := c.twoSessions()
	p, watches := watched(c, a, b)
	c.removeNode("q", p.Name)
	allClose(c, watches, "an operator removed the node")
}

func queueRemovalIsNotReleased(c *check) {
	a, b := c.twoSessions()
	_, watches := watched(c, a, b)
	c.removeQueue("q")
	allClose(c, watches, "an operator removed the queue")
}

// reconnectIsNotReleased deletes the node while the watching session is cut off.
func reconnectIsNotReleased(c *check) {
	a, b := c.twoSessions()
	p, watches := watched(c, a, b)
	heal := c.cutOff(b)
	c.delete(a, "q", p)
	heal()
	allClose(c, watches, "Delete of the node while the watching session was cut off")
}

func otherReleaseIsNotReleased(c *check) {
	a, b := c.twoSessions()
	for range 10 {
		p, watches := watched(c, a, b)
		other := c.create(a, "q", writer)
		c.release(a, "q", other)
		c.delete(a, "q", p)
		allClose(c, watches[:3], "Release of another node of the queue and Delete of this one")
	}
}

// releasedInOrder removes one watched node and then releases another one: who
// receives Released of the second must be able to see the first go.
func releasedInOrder(c *check) {
	holder, contender, third := c.session(), c.session(), c.session()
	for range 60 {
		released := c.create(holder, "q", writer)
		removed := c.create(third, "q", writer)
		own := c.watch(contender, "q", removed.Name)
		before := c.watch(contender, "q", released.Name)
		c.together(2, func(i int) {
			if i == 0 {
				c.delete(third, "q", removed)
				c.release(holder, "q", released)
				return
			}
			if !c.releasedNow(before) {
				return
			}
			if !readable(own) {
				c.fatalf("Released was received, and the watch of a node that had been removed earlier is still open in the same session")
			}
			if nodes := c.list(contender, "q"); has(nodes, released.Node) || has(nodes, removed.Node) {
				c.fatalf("after Released was received the same session's List returned %v, expected %s and %s to be gone",
					nodes, removed.Name, released.Name)
			}
		})
		c.closesUnreleased(own, "Delete of the node")
	}
}

// releasedNow waits for the first that the watch says and reports whether that is Released.
func (c *check) releasedNow(w <-chan driver.Cause) bool {
	select {
	case cause := <-w:
		return cause == driver.Released
	case <-c.patience.Done():
		c.fatalf("the watch was still open after %v, expected it to close after Release of the node", c.config.bound())
	}
	return false
}

func readable(w <-chan driver.Cause) bool {
	select {
	case <-w:
		return true
	default:
		return false
	}
}

func placeEnds(c *check) {
	a, b := c.twoSessions()
	for i := range 10 {
		p, other := c.create(a, "q", writer), c.create(b, "q", writer)
		w := c.watchPlace(a, "q", p)
		if i%2 == 0 {
			c.delete(a, "q", p)
			c.closesUnreleased(w, "Delete of the node")
		} else {
			c.release(a, "q", p)
			c.closes(w, "Release of the node")
		}
		c.delete(b, "q", other)
	}
}

func placeGone(c *check) {
	a, b := c.twoSessions()
	c.create(b, "q", writer)
	p := c.create(a, "q", writer)
	c.delete(a, "q", p)
	c.isClosed(c.watchPlace(a, "q", p), "Delete of the node")
}

func (c *check) isClosed(w <-chan driver.Cause, after string) {
	if !readable(w) {
		c.fatalf("WatchPlace after %s returned a channel that is open, expected it to be closed", after)
	}
	c.closesUnreleased(w, "%s", after)
}

// placeOfNamesake has another node of the name watched before, or not: a driver may keep one watch for
// each name.
func placeOfNamesake(c *check) {
	a, b := c.twoSessions()
	for _, before := range []bool{false, true} {
		p := c.create(a, "q", writer)
		c.removeQueue("q")
		stay := namesakes(c, a, b, "q", p.Node)
		if before {
			c.watch(a, "q", p.Name)
		}
		c.isClosed(c.watchPlace(a, "q", p), "removal of the queue, with another node that has the name now")
		c.wantNodes("after WatchPlace", c.settled(b, "q"), stay...)
		c.removeQueue("q")
	}
}
