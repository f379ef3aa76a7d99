package dlocktest

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var nameCases = []testCase{
	{name: "a-name-is-the-prefix-and-the-sequence", why: "a lock reads the mode of each contender from its name", run: solo(func(c *check, s session) {
		for _, prefix := range []string{writer, reader, "x-", "web-0000000007-W-", "a.b_c-%2F-R-", "--"} {
			checkName(c, c.create(s, "q", prefix), prefix)
		}
		for _, n := range c.list(s, "q") {
			if _, seq, ok := driver.ParseName(n.Name); !ok || seq != n.Seq {
				c.errorf("List returned the node %q with Seq %d, expected the sequence of the name", n.Name, n.Seq)
			}
		}
	})},
	{name: "names-are-unique-in-a-queue", why: "two contenders of one name would both take the oldest node for their own", run: func(c *check) {
		seen := make(map[driver.Node]bool)
		for _, p := range createMany(c, 15) {
			if seen[p.Node] {
				c.errorf("Create returned the node %v twice, expected names that are unique", p.Node)
			}
			seen[p.Node] = true
		}
	}},
	{name: "names-at-the-limits-are-taken", why: "an application that uses a name which CheckQueue and CheckPrefix accept could not change its store",
		run: pair(func(c *check, a, b session) {
			for _, queue := range []string{
				"q", "lager/größe 42/日本", "per%cent/%2e%2e/a+b?c=d&e#f", `back\slash/'quote'"/*/{}[]$`, "...", "-/0000000001",
				strings.Repeat("long", (driver.MaxQueue-3)/4) + "end",
			} {
				var want []driver.Node
				for _, prefix := range []string{"w-", "größe-日本-W-", `a b%2F\'"*-R-`, strings.Repeat("p", driver.MaxPrefix-1) + "-"} {
					p := c.create(a, queue, prefix)
					checkName(c, p, prefix)
					want = append(want, p.Node)
				}
				c.wantNodes(fmt.Sprintf("queue %q", queue), c.listAfterWrite(b, queue), want...)
			}
		})},
	{name: "a-queue-may-be-named-like-a-node", why: "a lock whose name looks like a node would fail, or the lock above would take that name for a contender and wait for it for ever",
		run: pair(func(c *check, a, b session) {
			first := c.create(a, "q", "front-W-")
			queues := append([]string{"q/" + first.Name, "q/" + first.Name + "/" + first.Name}, nodeLike...)
			for _, segment := range nodeLike {
				queues = append(queues, "q/"+segment)
			}
			places := c.wantSeparate(a, "above or beside queues that are named like nodes", queues...)
			c.wantNodes("the queue above", c.listAfterWrite(b, "q"), first.Node)
			last := c.create(b, "q", writer)
			c.delete(a, "q", first)
			c.wantNodes("the queue above", c.listAfterWrite(a, "q"), last.Node)
			for i, queue := range queues {
				c.wantNodes(fmt.Sprintf("queue %q, after a node above it was deleted", queue), c.listAfterWrite(b, queue), places[i].Node)
				c.delete(a, queue, places[i])
				c.wantNodes(fmt.Sprintf("queue %q, after its node was deleted", queue), c.list(a, queue))
			}
		})},
	{name: "names-that-look-alike-are-different", why: "locks of different names would block each other, on stores that ignore case, pad, cut or match names",
		run: solo(func(c *check, s session) {
			long := strings.Repeat("x", driver.MaxQueue-1)
			for _, alike := range [][]string{
				{"stock", "Stock", "STOCK", " stock", "stock ", "stock  "},
				{"caf\u00e9", "cafe\u0301", "cafe"},
				{"stra\u00dfe", "strasse"},
				{"a_b", "axb", "a%b", "a*b", "a?b", "[a]b"},
				{"a/b", "a.b", "a-b", "a:b", "a|b", "a%2Fb", "a\\b"},
				{"1", "01", "1.0"},
				{long + "a", long + "b", long[:255], long[:256]},
				{"a-1234567890", "a-1234567890~", "a-1234567890~~", "a1234567890", "a-01234567890"},
			} {
				c.wantSeparate(s, "beside queues of similar names", alike...)
			}
			upper, lower := c.create(s, "q", "WEB-W-"), c.create(s, "q", "web-w-")
			c.wantNodes("prefixes that differ in case", c.list(s, "q"), upper.Node, lower.Node)
			checkName(c, upper, "WEB-W-")
			checkName(c, lower, "web-w-")
		})},
	{name: "a-bad-prefix-is-refused", why: "a prefix with a slash would put the node into another queue, where it blocks another lock", run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		for _, prefix := range badPrefixes {
			_, err := tryCreate(c.ctx, s, "q", prefix)
			c.wantName(fmt.Sprintf("Create with the prefix %q", prefix), err)
			c.wantName(fmt.Sprintf("Replace with the prefix %q", prefix), replaceErr(c, s, "q", p, prefix))
		}
		c.wantNodes("the queue", c.list(s, "q"), p.Node)
		for _, queue := range []string{"q/a", "q2", "a"} {
			c.wantNodes("queue "+queue, c.list(s, queue))
		}
	})},
	{name: "a-bad-queue-is-refused", why: "a name such as a/../b would mix the nodes of one lock with those of another", run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		for _, queue := range badQueues {
			for name, call := range c.calls(c.ctx, s, queue, p) {
				if name != "Walk" {
					c.wantName(fmt.Sprintf("%s in the queue %q", name, queue), call())
				}
			}
		}
		c.wantNodes("the queue", c.list(s, "q"), p.Node)
	})},
	{name: "a-name-that-comes-again-has-another-epoch", why: "a contender whose node was removed with its queue would take another contender's node of that name for its own: two would hold the lock",
		needs: needRemoveQueue, run: pair(func(c *check, a, b session) {
			var seen []driver.Node
			for range 4 {
				for _, s := range []session{a, b} {
					for range 3 {
						n := c.create(s, "q", writer).Node
						if has(seen, n) {
							c.fatalf("after the queue was removed and made again Create returned %v a second time: expected another name or another Epoch", n)
						}
						if nodes := c.list(s, "q"); !has(nodes, n) {
							c.fatalf("Create returned %v, List %v: expected the same name, sequence and epoch", n, nodes)
						}
						seen = append(seen, n)
					}
					c.removeQueue("q")
				}
			}
		})},
}
