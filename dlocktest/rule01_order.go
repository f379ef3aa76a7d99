package dlocktest

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var orderCases = []testCase{
	{name: "sequential-creates-are-listed-oldest-first", why: "a lock belongs to the oldest node: a list in another order makes two contenders the oldest, or makes a contender wait for a node behind its own",
		run: func(c *check) {
			sessions := c.sessions(3)
			var want []driver.Node
			// The prefixes descend, to catch drivers that sort nodes by name. There are
			// enough nodes for two-digit sequences.
			for i := range 27 {
				prefix := fmt.Sprintf("%c-%c-", 'z'-i%26, "RW"[i%2])
				want = append(want, c.create(sessions[i%3], "q", prefix).Node)
				c.wantNodes(fmt.Sprintf("after %d creates", i+1), c.list(sessions[i%3], "q"), want...)
			}
			for _, s := range sessions {
				c.wantNodes("another session", c.listAfterWrite(s, "q"), want...)
			}
		}},
	{name: "concurrent-creates-are-listed-in-the-order-of-their-tokens", why: "the fencing tokens of holders that follow each other in the queue would fall, and the resource would refuse the rightful holder",
		run: solo(func(c *check, s session) { c.wantWholeQueue(s, createMany(c, 15)) })},
	{name: "nothing-appears-before-a-listed-node", why: "a contender whose node is the oldest in a list holds the lock; a node that appears before it later would hold the lock as well",
		run: pair(func(c *check, a, b session) {
			c.during(func() { createMany(c, 25) }, newNodesBehind(c, a), newNodesBehind(c, b))
		})},
	{name: "a-create-that-begins-after-another-returned-is-behind-it", why: "the lock would not be fair, and a node could come before that of a contender which holds the lock because it was alone",
		run: func(c *check) {
			var highest atomic.Int64
			highest.Store(math.MinInt64)
			c.together(4, func(i int) {
				s := c.session()
				for range 40 {
					begun := highest.Load()
					p := c.create(s, "q", fmt.Sprintf("h%d-W-", i))
					if p.Token <= begun {
						c.fatalf("a Create that began after another had returned token %d got token %d, expected a higher one", begun, p.Token)
					}
					raise(&highest, p.Token)
					c.delete(s, "q", p)
				}
			})
		}},
	{name: "list-sees-what-the-session-has-done", why: "a contender that does not find its own node queues again; one that finds a node which it has deleted waits for itself",
		run: func(c *check) {
			c.together(4, func(i int) {
				s := c.session()
				for range 25 {
					p := c.create(s, "q", fmt.Sprintf("h%d-W-", i))
					if nodes := c.list(s, "q"); !has(nodes, p.Node) {
						c.fatalf("after Create returned %v the same session's List returned %v, expected the node in it", p.Node, nodes)
					}
					c.delete(s, "q", p)
					if nodes := c.list(s, "q"); has(nodes, p.Node) {
						c.fatalf("after Delete of %v the same session's List returned %v, expected the node to be gone", p.Node, nodes)
					}
				}
			})
		}},
	{name: "queues-below-one-another-are-separate", why: "locks of unrelated names would block each other", run: solo(func(c *check, s session) {
		places := c.wantSeparate(s, "above or below other queues", "stock/42", "stock", "stock/42/red", "stocks", "stock/421")
		c.delete(s, "stock", places[1])
		c.wantNodes("queue stock after its node was deleted", c.list(s, "stock"))
		c.wantNodes("queue stock/42 after the node of stock was deleted", c.list(s, "stock/42"), places[0].Node)
	})},
	{name: "a-long-queue-is-listed-in-full", why: "a contender that gets only a page of the list does not find its own node, or takes it for the oldest",
		run: pair(func(c *check, a, b session) {
			// There are more nodes than fit in one page of most stores. More
			// than two creators might overload the store until it loses
			// sessions.
			enough := time.Now().Add(max(2*c.config.sessionTimeout(), 3*time.Second))
			var places [2][]driver.Place
			c.together(2, func(i int) {
				for len(places[i]) < 600 && time.Now().Before(enough) {
					places[i] = append(places[i], c.create([]session{a, b}[i], "q", fmt.Sprintf("h%d-W-", i)))
				}
			})
			c.wantWholeQueue(a, slices.Concat(places[:]...))
		})},
	{name: "unsequenced-nodes-are-not-listed", why: "a file that another program left in the queue would block the lock for ever",
		needs: needPutNode, run: solo(func(c *check, s session) {
			p, later := aroundUnsequenced(c, s)
			c.wantNodes("a queue with unsequenced nodes", c.list(s, "q"), p.Node, later.Node)
		})},
}

// wantWholeQueue checks that the queue has exactly these places, in order of
// tokens, once the nodes of failed creates are gone.
func (c *check) wantWholeQueue(s session, places []driver.Place) {
	slices.SortFunc(places, byToken)
	want := nodesOf(places)
	got := c.eventually(func() (any, bool) {
		nodes := c.listAfterWrite(s, "q")
		return nodes, len(nodes) <= len(want)
	}, "List returns no more than the %d nodes that were created", len(want)).([]driver.Node)
	for i, n := range want {
		if i >= len(got) || got[i] != n {
			c.fatalf("List of a queue of %d nodes returned %d, or in another order than that of their tokens; the first that differs has index %d",
				len(want), len(got), i)
		}
	}
	c.logf("the queue had %d nodes", len(want))
}

func (c *check) wantSeparate(s session, where string, queues ...string) (places []driver.Place) {
	for _, queue := range queues {
		places = append(places, c.create(s, queue, writer))
	}
	for i, queue := range queues {
		c.wantNodes(fmt.Sprintf("queue %q, %s", queue, where), c.list(s, queue), places[i].Node)
	}
	return places
}

func newNodesBehind(c *check, s session) (look func()) {
	known := make(map[driver.Node]bool)
	return func() {
		var added *driver.Node
		nodes := c.list(s, "q")
		for _, n := range nodes {
			switch {
			case !known[n]:
				added = &n
			case added != nil:
				c.fatalf("List returned %v: %s is new and stands before %s, which had been listed", nodes, added.Name, n.Name)
			}
		}
		for _, n := range nodes {
			known[n] = true
		}
	}
}

func raise(highest *atomic.Int64, to int64) {
	for now := highest.Load(); now < to && !highest.CompareAndSwap(now, to); now = highest.Load() {
	}
}
