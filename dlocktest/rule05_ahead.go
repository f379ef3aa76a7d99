package dlocktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	whyAhead = "with a wrong list of the nodes ahead, a contender takes the lock beside a holder, or waits for a node that does not block it"
	whyArmed = "a contender that relies on the watch that Create returned would wait for ever"
)

var aheadCases = []testCase{
	{name: "ahead-is-what-list-shows", why: whyAhead, needs: needAhead, run: pair(func(c *check, a, b session) {
		var places []driver.Place
		for i := range 12 {
			s := []session{a, b}[i%2]
			j := c.join(s, "q", fmt.Sprintf("%c-%c-", 'z'-i, "RW"[i/2%2]), nil)
			c.wantAhead(j, nodesOf(places)...)
			places = append(places, j.Place)
			c.wantNodes("after Create", c.list(s, "q"), nodesOf(places)...)
		}
		for len(places) > 1 {
			c.delete(a, "q", places[0])
			places = places[1:]
			j := c.join(b, "q", writer, nil)
			c.wantAhead(j, nodesOf(places)...)
			c.delete(b, "q", j.Place)
			a, b = b, a
		}
		c.wantAhead(c.join(b, "q/below", writer, nil))
	})},
	{name: "a-foreign-contender-is-ahead", why: whyAhead, needs: needAhead | needPutNode, run: solo(func(c *check, s session) {
		const foreign = "legacy-0000000000" // locks treat this as a writer's node
		c.putNode("q", foreign, "not a lock's")
		j := c.join(s, "q", writer, nil)
		nodes := c.list(s, "q")
		if len(nodes) != 2 || nodes[0].Name != foreign || nodes[1] != j.Node {
			c.fatalf("List returned %v, expected the foreign node %s and then %s", nodes, foreign, j.Name)
		}
		c.wantAhead(j, nodes[0])
	})},
	{name: "unsequenced-nodes-are-not-ahead", why: whyAhead, needs: needAhead | needPutNode, run: solo(func(c *check, s session) {
		p, later := aroundUnsequenced(c, s)
		c.wantAhead(later, p.Node)
	})},
	{name: "a-replaced-node-is-ahead-by-its-new-name", why: whyAhead, needs: needAhead, run: pair(func(c *check, a, b session) {
		now := c.replace(a, "q", c.create(a, "q", writer), shared)
		for range 3 {
			j := c.join(b, "q", writer, nil)
			c.wantAhead(j, now.Node)
			c.delete(b, "q", j.Place)
		}
	})},
	{name: "ahead-forgets-a-queue-that-was-removed", why: whyAhead, needs: needAhead | needRemoveQueue, run: pair(func(c *check, a, b session) {
		for range 5 {
			c.create(a, "q", writer)
			c.create(b, "q", writer)
			c.removeQueue("q")
			first := c.join(b, "q", writer, nil)
			c.wantAhead(first)
			c.wantAhead(c.join(a, "q", writer, nil), first.Node)
			c.removeQueue("q")
		}
	})},
	{name: "concurrent-creates-know-all-nodes-before-their-own", why: whyAhead, needs: needAhead, run: func(c *check) {
		sessions := c.sessions(3)
		c.rounds(25, func(round int) {
			queue := fmt.Sprintf("q%d", round%5)
			all, places := make([]driver.Joined, 6), make([]driver.Place, 6)
			c.together(len(all), func(i int) {
				all[i] = c.join(sessions[i%3], queue, writer, nil)
				places[i] = all[i].Place
			})
			slices.SortFunc(places, byToken)
			nodes := nodesOf(places)
			for i, j := range all {
				// Ignore nodes of failed creates, which may go late.
				before := nodes[:slices.Index(nodes, j.Node)]
				if got := among(j.Ahead, nodes); j.Known && !slices.Equal(got, before) {
					c.fatalf("Create of %s (token %d) returned the nodes ahead %v, expected all with a smaller token: %v",
						j.Name, j.Token, j.Ahead, before)
				}
				c.delete(sessions[i%3], queue, j.Place)
			}
		})
	}},
	{name: "ahead-is-of-an-instant-at-which-the-node-stood", why: whyAhead, needs: needAhead, run: pair(func(c *check, a, b session) {
		c.rounds(100, func(i int) {
			gone, stays, goes := c.create(a, "q", writer), c.create(a, "q", writer), c.create(a, "q", writer)
			c.delete(a, "q", gone)
			var j driver.Joined
			c.atOnce(func() { c.delete(a, "q", goes) }, func() { j = c.join(b, "q", writer, nil) })
			if both := []driver.Node{stays.Node, goes.Node}; !slices.Equal(j.Ahead, both) {
				c.wantAhead(j, stays.Node)
			}
			c.delete(a, "q", stays)
			c.delete(b, "q", j.Place)
		})
	})},
	{name: "a-list-made-after-a-later-create-says-so", why: "a waiter for a semaphore's units would not learn that the contender ahead of it has got its own",
		needs: needAhead, run: solo(func(c *check, a session) {
			// A Create that no longer lists the deleted node, unlike a Create
			// with a higher token, listed the queue later and must report
			// Behind.
			sessions := c.sessions(4)
			c.rounds(100, func(int) {
				began := time.Now()
				goes := c.create(a, "q", writer)
				delay := rand.N(3*time.Since(began) + 1)
				all := make([]driver.Joined, len(sessions))
				c.together(len(all)+1, func(i int) {
					if i < len(all) {
						all[i] = c.join(sessions[i], "q", writer, nil)
						return
					}
					time.Sleep(delay)
					c.delete(a, "q", goes)
				})
				for i, j := range all {
					c.delete(sessions[i], "q", j.Place)
					after := slices.IndexFunc(all, func(k driver.Joined) bool { return k.Token > j.Token && has(k.Ahead, goes.Node) })
					if j.Known && !has(j.Ahead, goes.Node) && after >= 0 && !j.Behind {
						c.errorf("Create of %s returned Behind false, expected true: its list was made after that of %s, which still showed %s",
							j.Name, all[after].Name, goes.Name)
					}
				}
			})
		})},
	{name: "one-contender-at-a-time-is-alone", why: whyAhead, needs: needAhead, run: func(c *check) {
		// If Alone is true, the lock is granted without a further check.
		var inside occupants
		c.together(4, func(i int) {
			s := c.session()
			c.rounds(60, func(int) {
				j := c.join(s, "q", fmt.Sprintf("h%d-W-", i), nil)
				if j.Alone() {
					inside.visit(c, 1, 1, "Alone is true for %d contenders whose nodes are in the queue")
				}
				c.delete(s, "q", j.Place)
			})
		})
	}},
	{name: "predecessor-gets-the-nodes-ahead", why: whyArmed, run: pair(func(c *check, a, b session) {
		// A driver need not call Predecessor, but if it does, it must pass all nodes
		// ahead, or none if it does not know them.
		var want []driver.Node
		for i := range 8 {
			var seen [][]driver.Node
			j := c.join([]session{a, b}[i%2], "q", writer, func(ahead []driver.Node) int {
				seen = append(seen, slices.Clone(ahead))
				return last(ahead)
			})
			for _, ahead := range seen {
				if len(ahead) > 0 && !slices.Equal(ahead, want) {
					c.errorf("Create of %s called Predecessor with the nodes ahead %v, expected %v, as List returns them", j.Name, ahead, want)
				}
			}
			c.wantAhead(j, want...)
			j.Watch.Stop()
			want = append(want, j.Node)
		}
	})},
	{name: "a-watch-that-is-not-wanted-is-not-armed", why: "no caller stops a watch that it did not ask for: it stays until the session ends",
		run: pair(func(c *check, a, b session) {
			c.create(a, "q", writer)
			for range 5 {
				if j := c.join(b, "q", writer, nil); j.Watch.C != nil {
					c.errorf("Create without Predecessor returned a watch, expected none")
				}
				if j := c.join(b, "q", reader, func([]driver.Node) int { return -1 }); j.Watch.C != nil {
					c.errorf("Create returned a watch although Predecessor returned -1, expected none")
				}
			}
		})},
	{name: "a-watch-armed-by-create-ends-with-the-node-chosen", why: whyArmed, needs: needArmed, run: pair(func(c *check, a, b session) {
		for i := range 9 {
			owners := []session{a, b, a}
			places := []driver.Place{c.create(a, "q", writer), c.create(b, "q", reader), c.create(a, "q", writer)}
			choice := i % len(places)
			j := c.join(b, "q", writer, func(ahead []driver.Node) int { return slices.Index(ahead, places[choice].Node) })
			c.delete(owners[choice], "q", places[choice])
			if j.Watch.C != nil {
				c.wantUnreleasedEnd(j.Watch, "Delete of the node ahead that Predecessor chose, with index %d of 3", choice)
			}
			j.Watch.Stop()
			for k, p := range places {
				if k != choice {
					c.delete(owners[k], "q", p)
				}
			}
			c.delete(b, "q", j.Place)
		}
	})},
	{name: "a-watch-armed-by-create-ends-with-its-own-node", why: "a contender would not notice that its node was removed",
		needs: needArmed, run: pair(func(c *check, a, b session) {
			c.create(a, "q", writer)
			for range 5 {
				j := c.join(b, "q", writer, func([]driver.Node) int { return 0 })
				c.delete(b, "q", j.Place)
				if j.Watch.C != nil {
					c.wantUnreleasedEnd(j.Watch, "Delete of the node that Create made with the watch")
				}
			}
		})},
	{name: "a-deletion-that-meets-the-create-is-not-missed", why: whyArmed, needs: needArmed, run: pair(func(c *check, a, b session) {
		c.rounds(150, func(i int) {
			p := c.create(a, "q", writer)
			chosen := false
			var j driver.Joined
			c.atOnce(func() {
				time.Sleep(rand.N(100*time.Microsecond) * time.Duration(i%2))
				c.delete(a, "q", p)
			}, func() {
				j = c.join(b, "q", writer, func(ahead []driver.Node) int {
					at := slices.Index(ahead, p.Node)
					chosen = at >= 0
					return at
				})
			})
			if j.Watch.C != nil && chosen {
				c.wantUnreleasedEnd(j.Watch, "Delete of the node ahead while the watch was being armed by Create (round %d)", i)
			}
			j.Watch.Stop()
			c.delete(b, "q", j.Place)
		})
	})},
}
