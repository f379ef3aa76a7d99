package dlocktest

import (
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

const (
	whyRemove      = "an operator could not free a lock whose holder is stuck"
	whyRemoveOther = "an operator who removes a holder would take the lock from a later one, whom nobody has looked at"
)

var removeCases = []testCase{
	{name: "remove-takes-the-node-of-another-session", why: whyRemove, needs: needRemove,
		run: pair(func(c *check, a, operator session) {
			for i, prefix := range []string{writer, reader} {
				p := c.create(a, "q", prefix)
				c.listAfterWrite(operator, "q")
				remover := []session{operator, a}[i] // a session may remove its own node, too
				c.removeAny(remover, "q", p)
				c.wantNodes("the session that called Remove", c.list(remover, "q"))
				c.wantNodes("the owner, after Remove", c.listAfterWrite(a, "q"))
				c.wantDeleted("the owner's Delete after Remove", a.Delete(c.ctx, "q", p, driver.Released))
			}
		})},
	{name: "remove-spares-all-other-nodes", why: whyRemoveOther, needs: needRemove,
		run: pair(func(c *check, a, operator session) {
			first, p, last := c.create(a, "q", writer), c.create(a, "q", writer), c.create(operator, "q", writer)
			other, below := c.create(a, "r", writer), c.create(a, "q/below", writer)
			c.removeAny(operator, "q", p)
			c.wantNodes("after Remove", c.listAfterWrite(a, "q"), first.Node, last.Node)
			c.wantNodes("another queue, after Remove", c.listAfterWrite(a, "r"), other.Node)
			c.wantNodes("a queue below, after Remove", c.listAfterWrite(a, "q/below"), below.Node)
		})},
	{name: "remove-spares-a-node-of-another-token", why: whyRemoveOther, needs: needRemove,
		run: pair(func(c *check, a, operator session) {
			p, later := c.create(a, "q", writer), c.create(a, "q", writer)
			for _, token := range []int64{0, p.Token - 1, p.Token + 1, later.Token, -p.Token} {
				c.wantSpared(fmt.Sprintf("the token %d instead of %d", token, p.Token), operator, "q", driver.Place{Node: p.Node, Token: token})
			}
			c.removeAny(operator, "q", p)
		})},
	{name: "remove-spares-a-node-that-took-the-name", why: whyRemoveOther, needs: needRemove | needRemoveQueue,
		run: pair(func(c *check, a, operator session) {
			old := c.create(a, "q", writer)
			c.removeQueue("q")
			createNamesakes(c, a, operator, "q", old.Node)
			c.wantSpared("the place of a node of a queue that was removed", operator, "q", old)
		})},
	{name: "remove-spares-a-node-of-another-name", why: whyRemoveOther, needs: needRemove,
		run: pair(func(c *check, a, operator session) {
			p, later := c.create(a, "q", writer), c.create(a, "q", writer)
			for _, name := range []string{later.Name, driver.FormatName(shared, p.Seq), driver.FormatName("w-", p.Seq), "readme"} {
				c.wantSpared("another name", operator, "q", driver.Place{Node: driver.Node{Name: name, Seq: p.Seq, Epoch: p.Epoch}, Token: p.Token})
			}
		})},
	{name: "remove-spares-a-node-that-was-replaced", why: whyRemoveOther, needs: needRemove,
		run: pair(func(c *check, a, operator session) {
			p := c.create(a, "q", writer)
			now := c.replace(a, "q", p, shared)
			c.wantSpared("the name that the node had before Replace", operator, "q", p)
			c.removeAny(operator, "q", now)
			c.wantNodes("after Remove of a node that was replaced", c.listAfterWrite(operator, "q"))
			_, err := a.Replace(c.ctx, "q", now, writer)
			c.wantGone("Replace after Remove", err)
		})},
	{name: "remove-takes-a-foreign-node", why: "a node that another program has left behind would block the lock for ever",
		needs: needRemove | needRead | needPutNode, run: solo(func(c *check, s session) {
			p := c.create(s, "q", writer)
			const foreign = "legacy-0000000003"
			c.putNode("q", foreign, "not a lock's")
			c.listAfterWrite(s, "q")
			info := c.read(s, "q", foreign)
			c.wantSpared("a token that a foreign node does not have", s, "q", driver.Place{Node: info.Node, Token: info.Token + 1})
			c.removeAny(s, "q", driver.Place{Node: info.Node, Token: info.Token})
			c.wantNodes("after Remove of a foreign node", c.listAfterWrite(s, "q"), p.Node)
		})},
	{name: "remove-of-a-node-that-is-gone-says-so", why: "an operator would believe to have freed a lock that another contender holds by now",
		needs: needRemove, run: pair(func(c *check, a, operator session) {
			p := c.create(a, "q", writer)
			c.delete(a, "q", p)
			c.listAfterWrite(operator, "q")
			for _, queue := range []string{"q", "never/was"} {
				c.wantGone("Remove", driver.Inspect(operator).Remove(c.ctx, queue, p))
			}
			p = c.create(a, "q", writer)
			c.removeAny(operator, "q", p)
			c.wantGone("a second Remove", driver.Inspect(operator).Remove(c.ctx, "q", p))
		})},
	{name: "remove-ends-the-watches", why: whyWatch + "; and a holder would go on without its lock", needs: needRemove, run: removeEndsWatches},
	{name: "remove-is-not-released", why: whyReleased, needs: needRemove | needReleased, run: removeEndsWatches},
	{name: "released-does-not-overtake-a-remove", why: whyOvertook, needs: needRemove | needReleased,
		run: notOvertaken(6, event{"Remove of the node", func(c *check, _ session, p driver.Place) { c.removeAny(c.session(), "q", p) }})},
	{name: "remove-leaves-the-owner-its-session", why: "a client would lose all of its locks instead of one", needs: needRemove,
		run: pair(func(c *check, a, operator session) {
			p, elsewhere := c.create(a, "q", writer), c.create(a, "r", writer)
			w := c.watch(a, "r", elsewhere)
			c.removeAny(operator, "q", p)
			again := c.create(a, "q", writer)
			if again.Token <= p.Token {
				c.errorf("Create after Remove returned the token %d, expected more than %d", again.Token, p.Token)
			}
			c.wantNodes("after Remove and another Create", c.listAfterWrite(operator, "q"), again.Node)
			c.wantNodes("another queue of the owner", c.listAfterWrite(operator, "r"), elsewhere.Node)
			c.wantAlive(a, "Remove of one of its nodes by another session")
			c.delete(a, "r", elsewhere)
			c.wantUnreleasedEnd(w, "Delete of a node in another queue than Remove was called for")
		})},
}

func (c *check) removeAny(s session, queue string, p driver.Place) {
	c.retryRemoval(fmt.Sprintf("Remove(%q, %q, token %d)", queue, p.Name, p.Token), func() error {
		return driver.Inspect(s).Remove(c.ctx, queue, p)
	})
}

func (c *check) wantSpared(what string, s session, queue string, p driver.Place) {
	before := c.listAfterWrite(s, queue)
	c.wantGone("Remove with "+what, driver.Inspect(s).Remove(c.ctx, queue, p))
	c.wantNodes("after Remove with "+what, c.listAfterWrite(s, queue), before...)
}

var removeEndsWatches = waiters(func(c *check, a, b session) {
	for _, remover := range []session{c.session(), b} {
		p, watches := nodeWithWatches(c, a, b)
		c.removeAny(remover, "q", p)
		wantUnreleasedEnds(c, watches, "Remove of the node")
	}
})
