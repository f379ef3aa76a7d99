package dlocktest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const whyAlone = "Alone is the lock: who is told so enters without looking at the queue, although somebody else is inside"

var aloneCases = []testCase{
	{name: "a-node-behind-another-is-not-alone", why: whyAlone, run: secondIsNotAlone},
	{name: "a-node-behind-a-foreign-contender-is-not-alone", why: whyAlone, needs: needPutNode, run: notAloneBehindForeign},
	{name: "one-of-many-concurrent-creates-is-alone-at-most", why: whyAlone, run: oneAloneAtMost},
	{name: "nobody-is-alone-while-another-one-was-told-so", why: whyAlone, run: aloneExcludes},
	{name: "a-node-behind-a-replaced-one-is-not-alone", why: whyAlone, needs: needReplacer, run: notAloneBehindReplaced},
	{name: "a-node-in-a-queue-made-again-may-be-alone-once", why: whyAlone, needs: needRemoveQueue, run: aloneAfterRemoval},
}

func secondIsNotAlone(c *check) {
	a, b := c.twoSessions()
	first := c.create(a, "q", writer)
	if !first.Alone {
		c.logf("Alone is false in an empty queue: allowed, but every free lock then costs a List")
	}
	notAlone(c, first, "q", a, b)
	notAlone(c, c.create(a, "readers", reader), "readers", a, b)
	if other := c.create(b, "q/below", writer); other.Alone != first.Alone {
		c.logf("Alone is %v in an empty queue and %v in one below another", first.Alone, other.Alone)
	}
}

// notAlone creates nodes of both kinds behind the first one.
func notAlone(c *check, first driver.Place, queue string, sessions ...driver.Session) {
	for i := range 12 {
		s := sessions[i%len(sessions)]
		p := c.create(s, queue, fmt.Sprintf("h%d-%c-", i, "RW"[i/2%2]))
		if p.Alone {
			c.errorf("Alone is true for %s although %s was in the queue", p.Name, first.Name)
		}
		c.delete(s, queue, p)
	}
}

// notAloneBehindForeign puts a node of an unknown kind into the queue, which locks take for a
// contender that holds exclusively.
func notAloneBehindForeign(c *check) {
	s := c.session()
	const foreign = "legacy-0000000000"
	c.putNode("q", foreign)
	p := c.create(s, "q", writer)
	if p.Alone {
		c.errorf("Alone is true for %s although %s was in the queue", p.Name, foreign)
	}
	if nodes := c.list(s, "q"); len(nodes) != 2 || nodes[0].Name != foreign || nodes[1] != p.Node {
		c.errorf("List returned %v, expected %s, which somebody else put there, and %s", nodes, foreign, p.Name)
	}
}

func oneAloneAtMost(c *check) {
	sessions := []driver.Session{c.session(), c.session(), c.session()}
	for round := range 25 {
		queue := fmt.Sprintf("q%d", round%5)
		places := make([]driver.Place, 6)
		c.together(len(places), func(i int) {
			places[i] = c.create(sessions[i%3], queue, writer)
		})
		for _, p := range places {
			for _, q := range places {
				if p.Alone && q.Token < p.Token {
					c.fatalf("Alone is true for %s (token %d) although %s (token %d) was in the queue before it", p.Name, p.Token, q.Name, q.Token)
				}
			}
		}
		for i, p := range places {
			c.delete(sessions[i%3], queue, p)
		}
	}
}

// aloneExcludes takes Alone for a lock, as recipes do.
func aloneExcludes(c *check) {
	var inside, entered atomic.Int32
	c.together(4, func(i int) {
		s := c.session()
		for range 60 {
			p := c.create(s, "q", fmt.Sprintf("h%d-W-", i))
			if !p.Alone {
				c.delete(s, "q", p)
				continue
			}
			entered.Add(1)
			if n := inside.Add(1); n > 1 {
				c.errorf("Alone is true for %s although the node of another one that was told so is in the queue", p.Name)
			}
			linger()
			inside.Add(-1)
			c.delete(s, "q", p)
		}
	})
	c.logf("%d of 240 creates were alone", entered.Load())
}

// linger stays inside for a moment, so that the others come meanwhile.
func linger() { time.Sleep(rand.N(200 * time.Microsecond)) }

func notAloneBehindReplaced(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.replace(a, "q", p, "web1-R-")
	if second := c.create(b, "q", writer); second.Alone {
		c.errorf("Alone is true for %s although %s, replaced once, was in the queue", second.Name, p.Name)
	}
}

func aloneAfterRemoval(c *check) {
	a, b := c.twoSessions()
	for range 5 {
		c.create(a, "q", writer)
		c.create(b, "q", writer)
		c.removeQueue("q")
		first, second := c.create(b, "q", writer), c.create(a, "q", writer)
		if second.Alone {
			c.errorf("Alone is true for %s although %s was in the queue that had been made again", second.Name, first.Name)
		}
		c.removeQueue("q")
	}
}
