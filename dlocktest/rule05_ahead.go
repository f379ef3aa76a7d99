package dlocktest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	whyAhead = "with a wrong list of the nodes ahead, a contender takes the lock beside a holder, or waits for a node that does not block it"
	whyArmed = "a contender that relies on the watch that Create returned would wait for ever"
)

var aheadCases = []testCase{
	{name: "ahead-is-what-list-shows", why: whyAhead, needs: needAhead, run: pair(func(c *check, a, b session) {
		known := 0
		var places []driver.Place
		for i := range 12 {
			s := []driver.Session{a, b}[i%2]
			j := c.join(s, "q", fmt.Sprintf("%c-%c-", 'z'-i, "RW"[i/2%2]), nil)
			c.wantAhead(j, nodesOf(places)...)
			places = append(places, j.Place)
			nodes := c.list(s, "q")
			c.wantNodes("after Create", nodes, nodesOf(places)...)
			if j.Known {
				known++
			}
		}
		for len(places) > 1 {
			c.delete(a, "q", places[0])
			places = places[1:]
			j := c.join(b, "q", writer, nil)
			c.wantAhead(j, nodesOf(places)...)
			c.delete(b, "q", j.Place)
			a, b = b, a
		}
		below := c.join(b, "q/below", writer, nil)
		c.wantAhead(below)
		c.logf("%d of 12 creates knew the nodes ahead", known)
	})},
	{name: "a-foreign-contender-is-ahead", why: whyAhead, needs: needAhead | needPutNode,
		run: solo(func(c *check, s session) {
			// aheadForeign adds another program's node, which locks treat as a writer's.
			const foreign = "legacy-0000000000"
			c.putNode("q", foreign, "not a lock's")
			j := c.join(s, "q", writer, nil)
			nodes := c.list(s, "q")
			if len(nodes) != 2 || nodes[0].Name != foreign || nodes[1] != j.Node {
				c.fatalf("List returned %v, expected the foreign node %s and then %s", nodes, foreign, j.Name)
			}
			c.wantAhead(j, nodes[0])
		})},
	{name: "unsequenced-nodes-are-not-ahead", why: whyAhead, needs: needAhead | needPutNode, run: func(c *check) {
		p, later := aroundUnsequenced(c, c.session())
		c.wantAhead(later, p.Node)
	}},
	{name: "a-replaced-node-is-ahead-by-its-new-name", why: whyAhead, needs: needAhead,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			now := c.replace(a, "q", p, shared)
			for range 3 {
				j := c.join(b, "q", writer, nil)
				c.wantAhead(j, now.Node)
				c.delete(b, "q", j.Place)
			}
		})},
	{name: "ahead-forgets-a-queue-that-was-removed", why: whyAhead, needs: needAhead | needRemoveQueue,
		run: pair(func(c *check, a, b session) {
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
		// aheadConcurrent creates nodes concurrently. Each Create must return all nodes
		// with smaller tokens, and may return nodes of failed creates, which remain
		// briefly.
		sessions := []driver.Session{c.session(), c.session(), c.session()}
		c.rounds(25, func(round int) {
			queue := fmt.Sprintf("q%d", round%5)
			all := make([]driver.Joined, 6)
			c.together(len(all), func(i int) { all[i] = c.join(sessions[i%3], queue, writer, nil) })
			places := make([]driver.Place, len(all))
			for i, j := range all {
				places[i] = j.Place
			}
			slices.SortFunc(places, byToken)
			nodes := nodesOf(places)
			for i, j := range all {
				if j.Known {
					own := slices.Index(nodes, j.Node)
					got := slices.DeleteFunc(slices.Clone(j.Ahead), func(n driver.Node) bool { return !has(nodes, n) })
					if !slices.Equal(got, nodes[:own]) {
						c.fatalf("Create of %s (token %d) returned the nodes ahead %v, expected all with a smaller token: %v",
							j.Name, j.Token, j.Ahead, nodes[:own])
					}
				}
				c.delete(sessions[i%3], queue, j.Place)
			}
		})
	}},
	{name: "ahead-is-of-an-instant-at-which-the-node-stood", why: whyAhead, needs: needAhead,
		run: pair(func(c *check, a, b session) {
			// aheadAtAnInstant deletes a node while another is created. The nodes that
			// Create returns may include the deleted one, must include the one that stays,
			// and must not include one that was gone before.
			c.rounds(100, func(i int) {
				gone, stays, goes := c.create(a, "q", writer), c.create(a, "q", writer), c.create(a, "q", writer)
				c.delete(a, "q", gone)
				var j driver.Joined
				c.together(2, func(i int) {
					if i == 0 {
						c.delete(a, "q", goes)
						return
					}
					j = c.join(b, "q", writer, nil)
				})
				if both := []driver.Node{stays.Node, goes.Node}; !slices.Equal(j.Ahead, both) {
					c.wantAhead(j, stays.Node)
				}
				c.delete(a, "q", stays)
				c.delete(b, "q", j.Place)
			})
		})},
	{name: "a-list-made-after-a-later-create-says-so", why: "a waiter for a semaphore's units would not learn that the contender ahead of it has got its own",
		needs: needAhead, run: solo(func(c *check, a session) {
			// behindTells deletes a node while others are created. If one of these no
			// longer shows the deleted node, but a later one does, then the list of the
			// former is the newer list, and shows the latter. So Behind must be true.
			sessions := []driver.Session{c.session(), c.session(), c.session(), c.session()}
			met := 0
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
					if !j.Known || has(j.Ahead, goes.Node) || after < 0 {
						continue
					}
					met++
					if !j.Behind {
						c.errorf("Create of %s returned Behind false, expected true: its list was made after that of %s, which still showed %s",
							j.Name, all[after].Name, goes.Name)
					}
				}
			})
			c.logf("%d creates listed the queue after a later one", met)
		})},
	{name: "one-contender-at-a-time-is-alone", why: whyAhead, needs: needAhead, run: func(c *check) {
		// aloneExcludes checks that Create tells only one contender at a time that no
		// node is ahead, because that contender is granted the lock without a further
		// check.
		var inside, entered atomic.Int32
		c.together(4, func(i int) {
			s := c.session()
			c.rounds(60, func(int) {
				j := c.join(s, "q", fmt.Sprintf("h%d-W-", i), nil)
				if j.Alone() {
					entered.Add(1)
					if n := inside.Add(1); n > 1 {
						c.errorf("Alone is true for %s, and was true for another contender whose node is still in the queue", j.Name)
					}
					holdBriefly()
					inside.Add(-1)
				}
				c.delete(s, "q", j.Place)
			})
		})
		c.logf("%d creates were alone", entered.Load())
	}},
	{name: "predecessor-gets-the-nodes-ahead", why: whyArmed, run: pair(func(c *check, a, b session) {
		// predecessorGetsAhead checks the argument of Predecessor. A driver need not
		// call Predecessor, but if it does, it must pass all nodes ahead, or none if it
		// does not know them.
		var want []driver.Node
		asked := 0
		for i := range 8 {
			var seen [][]driver.Node
			j := c.join([]driver.Session{a, b}[i%2], "q", writer, func(ahead []driver.Node) int {
				seen = append(seen, slices.Clone(ahead))
				return last(ahead)
			})
			asked += len(seen)
			for _, ahead := range seen {
				if len(ahead) > 0 && !slices.Equal(ahead, want) {
					c.errorf("Create of %s called Predecessor with the nodes ahead %v, expected %v, as List returns them", j.Name, ahead, want)
				}
			}
			c.wantAhead(j, want...)
			j.Watch.Stop()
			want = append(want, j.Node)
		}
		c.logf("8 creates called Predecessor %d times", asked)
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
	{name: "a-watch-armed-by-create-ends-with-the-node-chosen", why: whyArmed, needs: needArmed,
		run: pair(func(c *check, a, b session) {
			// armedEndsWithChosen checks that Create watches the node chosen by
			// Predecessor. It chooses each of three nodes in turn and deletes the chosen
			// one; a watch of another node would stay open.
			armed := 0
			for i := range 9 {
				places := []driver.Place{c.create(a, "q", writer), c.create(b, "q", reader), c.create(a, "q", writer)}
				owners := []driver.Session{a, b, a}
				choice := i % len(places)
				j := c.join(b, "q", writer, func(ahead []driver.Node) int { return slices.Index(ahead, places[choice].Node) })
				if j.Watch.C != nil {
					armed++
					c.delete(owners[choice], "q", places[choice])
					c.wantUnreleasedEnd(j.Watch, "Delete of the node ahead that Predecessor chose, with index %d of 3", choice)
					j.Watch.Stop()
					places, owners = slices.Delete(places, choice, choice+1), slices.Delete(owners, choice, choice+1)
				}
				for k, p := range places {
					c.delete(owners[k], "q", p)
				}
				c.delete(b, "q", j.Place)
			}
			c.logf("%d of 9 creates returned a watch", armed)
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
	{name: "a-deletion-that-meets-the-create-is-not-missed", why: whyArmed, needs: needArmed,
		run: pair(func(c *check, a, b session) {
			armed := 0
			c.rounds(150, func(i int) {
				p := c.create(a, "q", writer)
				chosen := false
				var j driver.Joined
				c.together(2, func(k int) {
					if k == 0 {
						if i%2 == 0 {
							time.Sleep(rand.N(100 * time.Microsecond))
						}
						c.delete(a, "q", p)
						return
					}
					j = c.join(b, "q", writer, func(ahead []driver.Node) int {
						at := slices.Index(ahead, p.Node)
						chosen = at >= 0
						return at
					})
				})
				if j.Watch.C != nil && chosen {
					armed++
					c.wantUnreleasedEnd(j.Watch, "Delete of the node ahead while the watch was being armed by Create (round %d)", i)
				}
				j.Watch.Stop()
				c.delete(b, "q", j.Place)
			})
			c.logf("%d rounds met a watch", armed)
		})},
}
