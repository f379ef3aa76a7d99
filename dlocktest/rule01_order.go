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
			sessions := []driver.Session{c.session(), c.session(), c.session()}
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
		run: solo(func(c *check, s session) {
			places := createMany(c, "q", 15)
			c.wantWholeQueue(s, "q", places)
		})},
	{name: "nothing-appears-before-a-listed-node", why: "a contender whose node is the oldest in a list holds the lock; a node that appears before it later would hold the lock as well",
		run: func(c *check) {
			// nothingBeforeListed checks that no node appears ahead of one that was already
			// listed. It deletes no nodes, so each list must begin with all nodes of the
			// previous list. Nodes of failed creates are ignored, because they may briefly
			// remain.
			observers := []driver.Session{c.session(), c.session()}
			var creating atomic.Bool
			creating.Store(true)
			snapshots := make([][][]driver.Node, len(observers))
			c.together(len(observers)+1, func(i int) {
				if i == len(observers) {
					defer creating.Store(false)
					createMany(c, "q", 25)
					return
				}
				for creating.Load() {
					nodes := c.list(observers[i], "q")
					if n := len(snapshots[i]); n == 0 || !slices.Equal(snapshots[i][n-1], nodes) {
						snapshots[i] = append(snapshots[i], nodes)
					}
					pauseBriefly()
				}
			})
			last := c.listAfterWrite(observers[0], "q")
			for _, seen := range snapshots {
				for _, nodes := range seen {
					stayed := slices.DeleteFunc(slices.Clone(nodes), func(n driver.Node) bool { return !has(last, n) })
					if !slices.Equal(stayed, last[:len(stayed)]) {
						c.fatalf("List returned %v at one time and %v later: nodes appeared before nodes that had been listed", nodes, last)
					}
				}
			}
		}},
	{name: "nothing-appears-before-a-listed-node-while-nodes-come-and-go", why: "a contender whose node is the oldest in a list holds the lock; a node that appears before it later would hold the lock as well",
		run: solo(func(c *check, observer session) {
			var churning atomic.Int32
			const workers = 3
			churning.Store(workers)
			c.together(workers+1, func(i int) {
				if i == workers {
					wantNewNodesBehind(c, observer, "q", func() bool { return churning.Load() > 0 })
					return
				}
				defer churning.Add(-1)
				s := c.session()
				for range 60 {
					c.delete(s, "q", c.create(s, "q", fmt.Sprintf("h%d-W-", i)))
				}
			})
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
	{name: "a-missing-queue-is-empty", why: "no program makes queues beforehand, and operators and stores remove empty ones at any time",
		run: solo(func(c *check, s session) {
			c.wantNodes("a queue that never was", c.list(s, "never/was"))
			c.wantNodes("the queue above it", c.list(s, "never"))
		})},
	{name: "queues-below-one-another-are-separate", why: "locks of unrelated names would block each other",
		run: solo(func(c *check, s session) {
			queues := []string{"stock/42", "stock", "stock/42/red", "stocks", "stock/421"}
			var places []driver.Place
			for _, q := range queues {
				places = append(places, c.create(s, q, writer))
			}
			for i, q := range queues {
				c.wantNodes("queue "+q, c.list(s, q), places[i].Node)
			}
			c.delete(s, "stock", places[1])
			c.wantNodes("queue stock after its node was deleted", c.list(s, "stock"))
			c.wantNodes("queue stock/42 after the node of stock was deleted", c.list(s, "stock/42"), places[0].Node)
		})},
	{name: "a-long-queue-is-listed-in-full", why: "a contender that gets only a page of the list does not find its own node, or takes it for the oldest",
		run: func(c *check) {
			// longQueue creates more nodes than stores usually return in one page, or fewer
			// if the store is slow. It uses only two goroutines, because an overloaded
			// store would lose their sessions.
			sessions := []driver.Session{c.session(), c.session()}
			const workers, each = 2, 600
			enough := time.Now().Add(max(2*c.config.sessionTimeout(), 3*time.Second))
			places := make([][]driver.Place, workers)
			c.together(workers, func(i int) {
				for len(places[i]) < each && time.Now().Before(enough) {
					places[i] = append(places[i], c.create(sessions[i], "q", fmt.Sprintf("h%d-W-", i)))
				}
			})
			c.wantWholeQueue(sessions[0], "q", slices.Concat(places...))
		}},
	{name: "unsequenced-nodes-are-not-listed", why: "a file that another program left in the queue would block the lock for ever",
		needs: needPutNode, run: solo(func(c *check, s session) {
			p, later := aroundUnsequenced(c, s)
			c.wantNodes("a queue with unsequenced nodes", c.list(s, "q"), p.Node, later.Node)
		})},
}

// wantWholeQueue checks that the queue holds the given nodes in the order of
// their tokens. A Create that failed and was repeated may have left a node for
// a while.
func (c *check) wantWholeQueue(s driver.Session, queue string, places []driver.Place) {
	slices.SortFunc(places, byToken)
	want := nodesOf(places)
	var got []driver.Node
	c.eventually(func() bool {
		got = c.listAfterWrite(s, queue)
		return len(got) <= len(want)
	}, "List returns no more than the %d nodes that were created", len(want))
	if !slices.Equal(got, want) {
		c.fatalf("List of a queue of %d nodes returned %d, or in another order than that of their tokens; the first that differs has index %d",
			len(want), len(got), firstDifference(got, want))
	}
	c.logf("the queue had %d nodes", len(want))
}

// wantNewNodesBehind lists the queue until goOn returns false. New nodes must
// appear behind all known ones.
func wantNewNodesBehind(c *check, s driver.Session, queue string, goOn func() bool) {
	known := make(map[driver.Node]bool)
	for goOn() {
		var added *driver.Node
		nodes := c.list(s, queue)
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
		pauseBriefly()
	}
}

func raise(highest *atomic.Int64, to int64) {
	for {
		now := highest.Load()
		if now >= to || highest.CompareAndSwap(now, to) {
			return
		}
	}
}

func firstDifference(a, b []driver.Node) int {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return i
}
