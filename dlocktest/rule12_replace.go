package dlocktest

import (
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var replaceCases = []testCase{
	{name: "replace-changes-the-prefix-and-keeps-the-rest", why: whyReplace, run: pair(func(c *check, a, b session) {
		first, p, third := c.create(b, "q", reader), c.create(a, "q", writer), c.create(b, "q", writer)
		for _, prefix := range []string{shared, "a-longer-prefix-R-", writer, shared} {
			now := c.replace(a, "q", p, prefix)
			checkReplaced(c, p, now, prefix)
			c.wantNodes("the node's own session, after Replace", c.list(a, "q"), first.Node, now.Node, third.Node)
			c.wantNodes("another session, after Replace", c.listAfterWrite(b, "q"), first.Node, now.Node, third.Node)
			p = now
		}
		fourth := c.create(a, "q", writer)
		if fourth.Token <= third.Token {
			c.errorf("Create returned token %d after token %d, expected a higher one (rule 3)", fourth.Token, third.Token)
		}
		c.wantNodes("after Replace of the second node and a Create", c.listAfterWrite(b, "q"), first.Node, p.Node, third.Node, fourth.Node)
	})},
	{name: "list-shows-exactly-one-of-the-names", why: "a contender that lists during a downgrade would see a free lock, or two holders",
		run: solo(func(c *check, a session) {
			p, behind := c.create(a, "q", writer), c.create(a, "q", writer)
			var looks []func()
			for _, s := range append(c.sessions(2), a) {
				c.listAfterWrite(s, "q")
				looks = append(looks, func() { c.wantOneName(s, "while the first of two nodes was replaced", p, behind) })
			}
			c.during(func() {
				now := p
				c.rounds(120, func(n int) { now = c.replace(a, "q", now, []string{shared, writer}[n%2]) })
			}, looks...)
		})},
	{name: "replace-can-be-repeated-after-success", why: whyReplace, run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		now := c.replace(s, "q", p, shared)
		for range 3 {
			checkReplaced(c, p, c.replace(s, "q", p, shared), shared)
		}
		c.wantNodes("after Replace was repeated", c.list(s, "q"), now.Node)
	})},
	{name: "delete-takes-every-place-that-the-node-had", why: whyDelete, run: pair(func(c *check, a, b session) {
		// Some nodes are replaced twice, because a driver may remember only one old
		// name.
		stays := c.create(b, "q", writer)
		for _, prefixes := range [][]string{{shared}, {shared, "web1-X-"}} {
			for chosen := range len(prefixes) + 1 {
				places := []driver.Place{c.create(a, "q", writer)}
				for _, prefix := range prefixes {
					places = append(places, c.replace(a, "q", places[len(places)-1], prefix))
				}
				c.delete(a, "q", places[chosen])
				what := fmt.Sprintf("after Delete with %s, one of the names %v that the node has had", places[chosen].Name, nodesOf(places))
				c.wantNodes(what, c.listAfterWrite(b, "q"), stays.Node)
				for _, p := range places {
					c.wantDeleted("Delete with the place "+p.Name, a.Delete(c.ctx, "q", p, driver.Changed))
				}
				c.wantNodes("after Delete was repeated with every place of the node", c.listAfterWrite(b, "q"), stays.Node)
			}
		}
	})},
	{name: "replace-of-a-node-that-is-gone-says-so", why: whyGone, run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		c.delete(s, "q", p)
		c.wantGone("Replace", replaceErr(c, s, "q", p, shared))
		p = c.create(s, "q", writer)
		now := c.replace(s, "q", p, shared)
		c.delete(s, "q", now)
		c.wantGone("a repeated Replace", replaceErr(c, s, "q", p, shared))
		c.wantNodes("after Replace of nodes that are gone", c.list(s, "q"))
	})},
	{name: "replace-spares-a-node-that-took-the-name", why: whyStale, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.goneWithQueue(a, p)
			stay := createNamesakes(c, a, b, "q", p.Node)
			c.wantGone("Replace", replaceErr(c, a, "q", p, shared))
			c.wantNodes("after Replace of a node known to be gone", c.listAfterWrite(b, "q"), stay...)
		})},
	{name: "a-replaced-node-goes-with-its-session", why: whyClose, run: pair(func(c *check, a, b session) {
		c.replace(a, "q", c.create(a, "q", writer), shared)
		c.close(a)
		c.wantNodes("after Close of the session of a replaced node", c.listAfterWrite(b, "q"))
	})},
	{name: "a-replaced-node-keeps-token-and-data", why: "the holder would pass on a fencing token that its node does not have",
		needs: needRead, run: pair(func(c *check, a, b session) {
			p, text := c.createWithData(a, "q", writer)
			before := c.read(b, "q", p.Name)
			now := c.replace(a, "q", p, shared)
			c.listAfterWrite(b, "q")
			after := c.read(b, "q", now.Name)
			if after.Token != p.Token || string(after.Data) != text || after.Owner != before.Owner {
				c.errorf("after Replace Read returned token %d, data %q, owner %q, expected %d, %q, %q as before",
					after.Token, after.Data, after.Owner, p.Token, text, before.Owner)
			}
			_, err := driver.Inspect(b).Read(c.ctx, "q", p.Name)
			c.wantGone("Read of the old name", err)
		})},
	{name: "a-reply-lost-before-the-commit-can-be-repeated", why: whyReplace, needs: needLoseRequest,
		run: replaceLost(false)},
	{name: "a-reply-lost-after-the-commit-can-be-repeated", why: whyReplace, needs: needLoseReply,
		run: replaceLost(true)},
	{name: "delete-after-a-lost-reply-takes-whichever-stands", why: whyDelete, needs: needLosses,
		run: pair(func(c *check, a, b session) {
			stays := c.create(b, "q", writer)
			for i := range 4 {
				p := c.create(a, "q", writer)
				now := driver.Place{Node: driver.Node{Name: driver.FormatName(shared, p.Seq), Seq: p.Seq, Epoch: p.Epoch}, Token: p.Token}
				c.lose(a, faults.OpReplace, i%2 == 0)
				inDoubtReplace(c, a, replaceErr(c, a, "q", p, shared))
				repeatDelete(c, a, "q", []driver.Place{p, now}[i/2], driver.Changed)
				eventuallyHolds(c, b, "q", "a Delete that followed a Replace whose reply was lost", stays.Node)
				if c.endedWithConnection(a) {
					return
				}
			}
		})},
}

func checkReplaced(c *check, was, now driver.Place, prefix string) {
	want := driver.Node{Name: driver.FormatName(prefix, was.Seq), Seq: was.Seq, Epoch: was.Epoch}
	if now.Node != want || now.Token != was.Token {
		c.fatalf("Replace of %v (token %d) returned %v (token %d), expected %v with the same token", was.Node, was.Token, now.Node, now.Token, want)
	}
}

func replaceErr(c *check, s session, queue string, p driver.Place, prefix string) error {
	_, err := s.Replace(c.ctx, queue, p, prefix)
	return err
}

func inDoubtReplace(c *check, s session, err error) {
	c.mayFail("Replace whose request or reply was lost", s, c.ctx, err)
}

func replaceLost(committed bool) func(*check) {
	return pair(func(c *check, a, b session) {
		p, behind := c.create(a, "q", writer), c.create(b, "q", writer)
		c.lose(a, faults.OpReplace, committed)
		inDoubtReplace(c, a, replaceErr(c, a, "q", p, shared))
		if c.listAfterWrite(b, "q"); a.Err() == nil {
			c.wantOneName(b, "after a lost reply", p, behind)
		}
		now := ask(c, "a repeated Replace", func() (driver.Place, error) {
			now, err := a.Replace(c.ctx, "q", p, shared)
			if errors.Is(err, driver.ErrSessionEnded) && a.Err() != nil {
				err = nil
			}
			return now, err
		})
		if c.endedWithConnection(a) {
			return
		}
		checkReplaced(c, p, now, shared)
		c.wantNodes("after Replace was repeated", c.listAfterWrite(b, "q"), now.Node, behind.Node)
	})
}

func (c *check) wantOneName(s session, when string, p, behind driver.Place) {
	if nodes := c.list(s, "q"); len(nodes) != 2 || nodes[0].Seq != p.Seq || nodes[1] != behind.Node {
		c.fatalf("%s List returned %v, expected sequence %d under one name and then %v", when, nodes, p.Seq, behind.Node)
	}
}
