package dlocktest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	whyOwn   = "a contender whose node is removed would not notice that it has lost its place, or the lock"
	whyOther = "an observer of an election, which has no node of its own, would not learn that another contender leads"
	whyAny   = "a contender that waits for any change would miss this one"
	whyOver  = "a contender that waits would not learn that its session has ended and its node is gone"
	whyCtxOf = "a watch has to outlive the call that arms it: the contender would miss the end of the node, or list the queue for nothing"
)

var watchCases = []testCase{
	{name: "watch-of-a-node-that-is-deleted", why: whyWatch, run: pair(func(c *check, a, b session) {
		for range 5 {
			p, watches := nodeWithWatches(c, a, b)
			c.delete(a, "q", p)
			wantUnreleasedEnds(c, watches, "Delete of the node")
		}
	})},
	{name: "watch-of-a-node-deleted-before-arming", why: whyWatch, run: pair(func(c *check, a, b session) {
		p := c.create(a, "q", writer)
		mine, theirs := c.create(a, "q", writer), c.create(b, "q", writer)
		c.delete(a, "q", p)
		c.wantUnreleasedEnd(c.watch(a, "q", mine, p.Node), "Delete of the node ahead, before the watch was armed")
		c.listAfterWrite(b, "q")
		c.wantUnreleasedEnd(c.watch(b, "q", theirs, p.Node), "Delete of the node ahead by another session, before the watch was armed")
	})},
	{name: "watch-of-a-node-that-never-was", why: whyWatch, run: solo(func(c *check, s session) {
		before := c.create(s, "q", writer)
		p := c.create(s, "q", writer)
		other := before.Node
		other.Name = driver.FormatName("web9-W-", before.Seq)
		c.wantUnreleasedEnd(c.watch(s, "q", p, other), "it was called for the node ahead %s, which never existed", other.Name)
		for _, queue := range []string{"q", "never/was"} {
			never := driver.Place{Node: driver.Node{Name: driver.FormatName("web9-W-", p.Seq), Seq: p.Seq, Epoch: p.Epoch}}
			c.wantEndedWatch(c.watch(s, queue, never), "it was called for the own node %s in the queue %s, which never existed", never.Name, queue)
		}
	})},
	{name: "watch-of-several-nodes-ends-with-each-of-them", why: whyWatch, run: pair(func(c *check, a, b session) {
		for i := range 3 {
			places := []driver.Place{c.create(a, "q", writer), c.create(b, "q", reader), c.create(b, "q", writer)}
			owners := []driver.Session{a, b, b}
			w := c.watch(b, "q", places[2], places[0].Node, places[1].Node)
			c.delete(owners[i], "q", places[i])
			c.wantUnreleasedEnd(w, "Delete of %s, with index %d of the nodes %v of the watch", places[i].Name, i, nodesOf(places))
			w.Stop()
			for k := range places {
				if k != i {
					c.delete(owners[k], "q", places[k])
				}
			}
		}
	})},
	{name: "watch-of-ten-nodes-ends-with-any-of-them", why: "the first waiter for units of a semaphore would not get what any holder gives back",
		run: pair(func(c *check, a, b session) {
			for _, i := range []int{0, 4, 9} {
				var places []driver.Place
				for range 10 {
					places = append(places, c.create(a, "q", reader))
				}
				own, w := c.waitFor(b, "q", nodesOf(places)...)
				c.delete(a, "q", places[i])
				c.wantUnreleasedEnd(w, "Delete of %s, with index %d of ten nodes", places[i].Name, i)
				w.Stop()
				c.delete(b, "q", own)
				for _, p := range slices.Delete(places, i, i+1) {
					c.delete(a, "q", p)
				}
			}
		})},
	{name: "watch-of-one's-own-node", why: whyOwn, run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		w, byName := c.watch(s, "q", p), c.watch(s, "q", named(p))
		c.delete(s, "q", p)
		c.wantUnreleasedEnd(w, "Delete of the node by the watching session")
		c.wantUnreleasedEnd(byName, "Delete of the node by the watching session, which watched its name")
	})},
	{name: "watch-of-an-own-node-that-is-gone-is-closed", why: whyOwn, run: pair(func(c *check, a, b session) {
		ahead := c.create(b, "q", writer)
		p := c.create(a, "q", writer)
		c.delete(a, "q", p)
		c.wantEndedWatch(c.watch(a, "q", p), "Delete of the node")
		c.wantEndedWatch(c.watch(a, "q", named(p)), "Delete of the node")
		c.wantEndedWatch(c.watch(a, "q", p, ahead.Node), "Delete of the own node, with one ahead that stands")
	})},
	{name: "watch-of-an-own-node-is-of-that-very-node", why: whyOwn, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			// watchOwnNamesake watches a deleted node whose name another node has taken. In
			// the second round, that new node is watched already, to catch drivers that
			// keep one watch per name.
			for _, before := range []bool{false, true} {
				p := c.create(a, "q", writer)
				c.removeQueue("q")
				stay := createNamesakes(c, a, b, "q", p.Node)
				if before {
					for i, s := range []driver.Session{b, a} {
						c.watch(s, "q", driver.Place{Node: stay[i]})
					}
					c.watch(a, "q", driver.Place{Node: stay[1]}, stay[0])
				}
				c.wantEndedWatch(c.watch(a, "q", p), "removal of the queue, with another node that has the name now")
				c.wantNodes("after Watch", c.listAfterWrite(b, "q"), stay...)
				c.removeQueue("q")
			}
		})},
	{name: "watch-by-name-is-of-the-node-that-has-it", why: whyOwn, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			// watchByName watches nodes by name, without a token. If the store reuses
			// names, earlier nodes had the same names.
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
	{name: "watch-by-name-of-another-session's-node", why: whyOther, run: pair(func(c *check, a, b session) {
		// watchOther watches the first node of a queue, as observers do. A watch may
		// occasionally end early. An early end in every round is a failure, because it
		// would make observers list the queue all the time.
		early, ends := 0, []struct {
			what string
			end  func(driver.Session, driver.Place)
		}{
			{"Delete of the node", func(s driver.Session, p driver.Place) { c.delete(s, "q", p) }},
			{"release of the node", func(s driver.Session, p driver.Place) { c.release(s, "q", p) }},
			{"Close of the node's session", func(s driver.Session, _ driver.Place) { c.close(s) }},
		}
		for _, e := range ends {
			p := c.create(a, "q", writer)
			w := c.watch(b, "q", named(p))
			behind := c.create(b, "q", writer)
			if c.endsEarly(w) {
				early++
			}
			e.end(a, p)
			c.wantUnreleasedEnd(w, "%s", e.what)
			c.listAfterWrite(b, "q")
			c.wantEndedWatch(c.watch(b, "q", named(p)), "%s", e.what)
			c.delete(b, "q", behind)
		}
		if early == len(ends) {
			c.errorf("in %d rounds of %d the watch of another session's node ended while that node stood, expected it to go on", early, len(ends))
		}
	})},
	{name: "watch-by-name-of-another-session's-node-that-is-replaced", why: whyOther,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			w := c.watch(b, "q", named(p))
			c.replace(a, "q", p, shared)
			c.wantUnreleasedEnd(w, "Replace of the node")
		})},
	{name: "watch-by-name-of-another-session's-node-whose-session-expires", why: whyOther, needs: needDrop,
		run: pair(func(c *check, a, b session) {
			w := c.watch(b, "q", named(c.create(a, "q", writer)))
			c.expire(a)
			c.wantUnreleasedEnd(w, "the store ended the session of the node")
		})},
	{name: "watch-of-a-node-whose-session-closes", why: whyWatch, run: watchOwnerCloses},
	{name: "watch-of-a-node-whose-session-expires", why: whyWatch, needs: needDrop, run: watchOwnerExpires},
	{name: "watch-of-a-node-removed-by-an-operator", why: whyWatch, needs: needRemoveNode, run: watchNodeRemoved},
	{name: "watch-of-a-node-whose-queue-is-removed", why: whyWatch, needs: needRemoveQueue, run: watchQueueRemoved},
	{name: "watch-of-a-node-whose-name-comes-again", why: whyWatch, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			p, q := c.create(a, "q", writer), c.create(b, "q", writer)
			own, byName := c.watch(a, "q", p), c.watch(a, "q", named(p))
			other, otherName := c.watch(b, "q", q, p.Node), c.watch(b, "q", named(q), p.Node)
			c.removeQueue("q")
			again := []driver.Place{c.create(b, "q", writer), c.create(b, "q", writer)}
			for _, w := range []driver.Watch{own, byName, other, otherName} {
				c.wantUnreleasedEnd(w, "the queue was removed and made again (%s and %s were followed by %v)", p.Name, q.Name, nodesOf(again))
			}
		})},
	{name: "watch-of-a-node-that-is-replaced", why: "a reader that waits for a writer would not get the lock when the writer downgrades", run: watchReplaced},
	{name: "a-deletion-while-the-watching-session-was-cut-off-is-not-missed", why: whyWatch, needs: needCutOff,
		run: pair(func(c *check, a, b session) {
			// watchAcrossCut deletes one watched node while the watching session is cut off
			// from the store, and one afterwards. Both watches must end, even if the
			// session does too.
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
	{name: "a-deletion-after-the-connection-broke-is-not-missed", why: whyWatch, needs: needReset,
		run: pair(func(c *check, a, b session) {
			for range 3 {
				places := []driver.Place{c.create(a, "q", writer), c.create(a, "q", writer)}
				j := c.join(b, "q", reader, last)
				own, later := j.Place, j.Watch
				if later.C == nil {
					later = c.watch(b, "q", own, places[1].Node)
				}
				atOnce := c.watch(b, "q", own, places[0].Node)
				self, queue := c.watch(b, "q", own), c.watchQueue(b, "other")
				c.reset(b)
				c.delete(a, "q", places[0])
				c.wantUnreleasedEnd(atOnce, "Delete of the node ahead right after the connection of the watching session broke")
				if _, ok := createUnlessEnded(c, b, "measure", writer); ok { // success: the driver has reconnected
					c.delete(a, "q", places[1])
					c.create(a, "other", writer)
					repeatDelete(c, b, "q", own, driver.Changed)
				}
				c.wantUnreleasedEnd(later, "Delete of the node ahead after the watching session had connected again")
				c.wantUnreleasedEnd(queue, "Create in the queue after the watching session had connected again")
				c.wantUnreleasedEnd(self, "Delete of the own node after the watching session had connected again")
				if c.endedWithConnection(b) {
					return
				}
			}
		})},
	{name: "a-deletion-whose-notice-is-lost-is-not-missed", why: whyWatch, needs: needSilenceNotices,
		run: pair(func(c *check, a, b session) {
			// watchInSilence deletes a watched node while the watching session gets no
			// notices. It watches no queue, because that might make the driver poll.
			p := c.create(a, "q", writer)
			q, w := c.waitFor(b, "q", p.Node)
			watches := []driver.Watch{w, c.watch(b, "q", named(q), p.Node)}
			c.silenceNotices(b)
			c.delete(a, "q", p)
			wantUnreleasedEnds(c, watches, "Delete of the node ahead while no notice reached the watching session")
		})},
	{name: "a-creation-whose-notice-is-lost-is-not-missed", why: whyAny, needs: needSilenceNotices,
		run: pair(func(c *check, a, b session) {
			watches := []driver.Watch{c.watchQueue(b, "q")}
			c.silenceNotices(b)
			watches = append(watches, c.watchQueue(b, "q"), c.watchQueue(b, "other"))
			for _, queue := range []string{"q", "other"} {
				c.create(a, queue, writer)
			}
			wantUnreleasedEnds(c, watches, "Create in the queue while no notice reached the watching session")
		})},
	{name: "a-watch-armed-while-notices-are-lost-misses-no-deletion", why: whyWatch, needs: needSilenceNotices, run: armInSilence(watchAhead)},
	{name: "a-watch-armed-by-create-while-notices-are-lost-misses-no-deletion", why: whyWatch, needs: needSilenceNotices | needArmed,
		run: armInSilence(createArmed)},
	{name: "many-watches-of-one-node", why: whyWatch, run: pair(func(c *check, a, b session) {
		p := c.create(a, "q", writer)
		q := c.create(b, "q", writer)
		var watches []driver.Watch
		for range 30 {
			watches = append(watches, c.watch(a, "q", p), c.watch(b, "q", q, p.Node), c.watchQueue(b, "q"))
		}
		c.delete(a, "q", p)
		wantUnreleasedEnds(c, watches, "Delete of the node")
	})},
	{name: "the-ctx-of-watch-is-for-the-call-only", why: whyCtxOf, run: ctxEndsAfterCall(watchBoth)},
	{name: "the-ctx-of-create-is-for-the-call-only", why: whyCtxOf, needs: needArmed, run: ctxEndsAfterCall(createArmed)},
	{name: "stop-takes-no-other-watch-with-it", why: whyWatch, run: pair(func(c *check, a, b session) {
		// watchStopped stops one of several watches of the same node; the remaining
		// ones must still work. It tries several pauses, because a driver may free a
		// stopped watch later.
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
	{name: "stop-may-be-repeated-at-any-time", why: "callers stop a watch with defer, also a watch that has ended",
		run: pair(func(c *check, a, b session) {
			c.rounds(30, func(int) {
				p := c.create(a, "q", writer)
				q := c.create(b, "q", writer)
				stopped := []driver.Watch{c.watch(b, "q", q, p.Node), c.watchQueue(b, "q")}
				live := c.watch(b, "q", q, p.Node)
				c.together(4, func(i int) {
					if i == 0 {
						c.delete(a, "q", p)
						return
					}
					for _, w := range stopped {
						w.Stop()
					}
				})
				c.wantUnreleasedEnd(live, "Delete of the node ahead while other watches of it were stopped")
				for _, w := range append(stopped, live, driver.Watch{}) {
					w.Stop()
					w.Stop()
				}
				c.delete(b, "q", q)
			})
			w := c.watchQueue(b, "q")
			c.close(b)
			w.Stop()
		})},
	{name: "stop-does-not-block-while-cut-off", why: "a Lock whose ctx ends would not return before the store can be reached again",
		needs: needCutOff, run: func(c *check) {
			// stopWhileCutOff checks that Stop does not wait for the store: in a session
			// that is cut off, it must return long before the session ends.
			slow := inEveryTry(func() map[string]bool {
				s := c.session()
				p := c.create(s, "q", writer)
				watches := map[string]driver.Watch{"a node": c.watch(s, "q", p), "a queue": c.watchQueue(s, "q")}
				c.cutOff(s)
				found := make(map[string]bool)
				for of, w := range watches {
					begin := time.Now()
					w.Stop()
					if time.Since(begin) > c.config.sessionTimeout()/4 {
						found[of] = true
					}
				}
				return found
			})
			for of := range slow {
				c.errorf("Stop of a watch of %s took more than a quarter of the session timeout while the session was cut off, in every try: expected it not to block", of)
			}
		}},
	{name: "watch-of-a-queue-sees-a-creation", why: whyAny, run: queueSees("Create", watchSeesCreation)},
	{name: "watch-of-a-queue-sees-a-deletion", why: whyWatch, run: queueSees("Delete", watchSeesDelete(driver.Changed))},
	{name: "watch-of-a-queue-sees-a-node-that-came-and-went", why: whyAny, run: queueSees("Create and Delete", watchSeesCreateAndDelete)},
	{name: "watch-of-a-queue-sees-changes-of-the-only-session", why: whyAny, run: solo(func(c *check, s session) {
		// queueSeesTheOnlySession watches a queue from the store's only session,
		// because the requests of another session might alert the driver to the change.
		for range 2 {
			w := c.watchQueue(s, "q")
			p := c.create(s, "q", writer)
			c.wantUnreleasedEnd(w, "Create by the only session")
			w = c.watchQueue(s, "q")
			c.delete(s, "q", p)
			c.wantUnreleasedEnd(w, "Delete by the only session")
		}
	})},
	{name: "watch-of-a-queue-sees-a-session-close", why: whyWatch, run: queueSees("Close", watchSeesClose)},
	{name: "watch-of-a-queue-sees-its-removal", why: whyWatch, needs: needRemoveQueue, run: queueSees("removal of the queue, with a node,", watchSeesRemoval)},
	{name: "watch-of-a-queue-sees-a-replacement", why: "a reader that waits for a writer would not get the lock when the writer downgrades", run: queueSees("Replace", watchSeesReplace(shared))},
	{name: "watch-of-a-queue-sees-a-replacement-that-was-undone", why: whyAny,
		run: queueSees("Replace, and another one back to the first name,", watchSeesReplace(shared, writer))},
	{name: "a-list-after-the-arming-misses-no-change", why: whyWatch, run: pair(func(c *check, a, b session) {
		c.rounds(150, func(int) {
			var p driver.Place
			var w driver.Watch
			var nodes []driver.Node
			c.together(2, func(i int) {
				if i == 0 {
					p = c.create(a, "q", writer)
					return
				}
				w = c.watchQueue(b, "q")
				nodes = c.list(b, "q")
			})
			if !has(nodes, p.Node) {
				c.wantUnreleasedEnd(w, "Create of %s, which the List after the watch did not show", p.Name)
			}
			c.together(2, func(i int) {
				if i == 0 {
					c.delete(a, "q", p)
					return
				}
				w = c.watchQueue(b, "q")
				nodes = c.list(b, "q")
			})
			if has(nodes, p.Node) {
				c.wantUnreleasedEnd(w, "Delete of %s, which the List after the watch still showed", p.Name)
			}
		})
	})},
	{name: "a-deletion-that-meets-the-arming-is-not-missed", why: whyWatch, run: watchMeetsDelete(driver.Changed)},
	{name: "no-wake-up-is-missed-in-a-queue-of-contenders", why: whyWatch, run: func(c *check) {
		// watchChain runs contenders that queue as locks do, each waiting for the node
		// ahead.
		c.together(4, func(i int) {
			s := c.session()
			c.rounds(25, func(int) {
				j := c.join(s, "q", fmt.Sprintf("h%d-W-", i), last)
				w := j.Watch
				for {
					before, ok := predecessor(c, c.list(s, "q"), j.Node)
					if !ok {
						break
					}
					if w.C == nil {
						w = c.watch(s, "q", j.Place, before)
					}
					c.wantUnreleasedEnd(w, "the end of %s, which %s waits for", before.Name, j.Name)
					w.Stop()
					w = driver.Watch{}
				}
				w.Stop()
				c.delete(s, "q", j.Place)
			})
		})
	}},
	{name: "the-close-of-a-session-closes-its-watches", why: whyOver, run: watchesEnd("Close of the session", (*check).close)},
	{name: "the-expiry-of-a-session-closes-its-watches", why: whyOver, needs: needDrop, run: watchesEnd("the store ended the session", (*check).expire)},
	{name: "a-session-cut-off-closes-its-watches", why: whyOver, needs: needCutOff,
		run: watchesEnd("the session was cut off and ended", func(c *check, s driver.Session) {
			c.cutOff(s)
			c.awaitSessionEnd(s, "the session was cut off")
		})},
}

// armInSilence returns a case in which a session gets no notice of the node
// ahead, neither when it is created nor when it is deleted. The session has
// used the queue before in the first round only.
func armInSilence(
	arm func(c *check, ctx context.Context, s driver.Session, ahead driver.Node) (driver.Place, []driver.Watch),
) func(c *check) {
	return func(c *check) {
		a := c.session()
		for _, followed := range []string{"q", "other"} {
			b := c.session()
			c.waitFor(b, followed, c.create(a, followed, writer).Node)
			c.silenceNotices(b)
			p := c.create(a, "q", writer)
			_, watches := arm(c, c.ctx, b, p.Node)
			c.delete(a, "q", p)
			wantUnreleasedEnds(c, watches,
				"Create and Delete of the node ahead while no notice reached the watching session, which had followed the queue "+followed)
		}
	}
}

func watchAhead(c *check, _ context.Context, s driver.Session, ahead driver.Node) (driver.Place, []driver.Watch) {
	own, w := c.waitFor(s, "q", ahead)
	return own, []driver.Watch{w}
}

// ctxEndsAfterCall returns a case that ends the ctx of a call after the call
// has armed watches. The watches must outlive the ctx. Since they may
// occasionally end early, only a failure in every round counts.
func ctxEndsAfterCall(
	arm func(c *check, ctx context.Context, s driver.Session, ahead driver.Node) (driver.Place, []driver.Watch),
) func(c *check) {
	return func(c *check) {
		a, b := c.twoSessions()
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
	}
}

func watchBoth(c *check, ctx context.Context, s driver.Session, ahead driver.Node) (driver.Place, []driver.Watch) {
	own := c.create(s, "q", writer)
	var nodes, queue driver.Watch
	c.retry("Watch", func() (err error) { nodes, err = s.Watch(ctx, "q", own, ahead); return err })
	c.retry("WatchQueue", func() (err error) { queue, err = s.WatchQueue(ctx, "q"); return err })
	return own, []driver.Watch{nodes, queue}
}

func createArmed(c *check, ctx context.Context, s driver.Session, _ driver.Node) (driver.Place, []driver.Watch) {
	var j driver.Joined
	c.retry("Create", func() (err error) { j, err = tryJoin(ctx, s, "q", writer, last); return err })
	if j.Watch.C == nil {
		return j.Place, nil
	}
	return j.Place, []driver.Watch{j.Watch}
}

func predecessor(c *check, nodes []driver.Node, own driver.Node) (before driver.Node, ok bool) {
	for _, n := range nodes {
		if n == own {
			return before, ok
		}
		before, ok = n, true
	}
	c.fatalf("List returned %v, expected %v in it, whose session lives", nodes, own)
	return before, false
}

func openWatches(c *check, s driver.Session) (watches []driver.Watch) {
	p := c.create(c.session(), "q", writer)
	own := c.create(s, "q", reader)
	for range 3 {
		watches = append(watches, c.watch(s, "q", own), c.watch(s, "q", own, p.Node), c.watchQueue(s, "q"), c.watchQueue(s, "missing"))
	}
	c.create(s, "armed", writer)
	if j := c.join(s, "armed", writer, last); j.Watch.C != nil {
		watches = append(watches, j.Watch)
	}
	return watches
}

// watchesEnd returns a case that ends a session by calling end, and requires
// the session's watches to end too.
func watchesEnd(after string, end func(c *check, s driver.Session)) func(c *check) {
	return func(c *check) {
		s := c.session()
		watches := openWatches(c, s)
		end(c, s)
		wantUnreleasedEnds(c, watches, after)
	}
}
