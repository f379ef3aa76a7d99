package dlocktest

import "github.com/dlock-go/dlock/driver"

// Consequences for users if a driver does not notice that its store has lost data.
const (
	whyForgot       = "a holder whose node was lost goes on beside the next holder"
	whyForgotTokens = "a resource that has seen the token of a lost node refuses the next holder"
)

var lossCases = []testCase{
	{name: "sessions-end-when-the-store-loses-its-data", why: whyForgot, needs: needLossy, run: func(c *check) {
		lose := c.lossy()
		a, b := c.session(), c.session()
		p, _ := c.create(a, "q", writer), c.create(b, "other", reader)
		lose(a, b)
		for _, s := range []session{a, b} {
			c.awaitSessionEnd(s, "the store lost its data")
		}
		_, err := tryCreate(c.ctx, a, "q", writer)
		c.wantEnded("Create after a loss", err)
		c.wantEnded("Delete after a loss", a.Delete(c.ctx, "q", p, driver.Changed))
	}},
	{name: "nobody-follows-before-lost-leases-are-over", why: whyForgot, needs: needLossy | needCutOff,
		run: func(c *check) {
			lose := c.lossy()
			holder := c.session()
			p := c.create(holder, "q", writer)
			c.cutOff(holder)
			lose(holder)
			next := c.session()
			c.wantNoSecondHolder(holder, p, c.join(next, "q", writer, nil), c.list(next, "q"))
		}},
	{name: "a-session-from-before-a-loss-gets-no-lock", why: whyForgot, needs: needLossy | needCutOff,
		run: func(c *check) {
			lose := c.lossy()
			holder, other := c.session(), c.session()
			p := c.create(holder, "q", writer)
			c.cutOff(holder)
			lose(holder, other)
			c.eventually(func() (any, bool) {
				j, err := tryJoin(c.ctx, other, "q", writer, nil)
				if err == nil {
					nodes, _ := other.List(c.ctx, "q")
					c.wantNoSecondHolder(holder, p, j, nodes)
				}
				return j.Node, other.Err() != nil
			}, "a session ends when the store has lost its data")
		}},
	{name: "tokens-rise-after-a-loss", why: whyForgotTokens, needs: needLossy, run: func(c *check) {
		lose := c.lossy()
		var t tokens
		for range 3 {
			a := c.session()
			for range 3 {
				t.wantHigher(c, c.create(a, "q", writer))
			}
			lose(a)
		}
		t.wantHigher(c, c.create(c.session(), "q", writer))
	}},
	{name: "after-a-loss-the-queue-is-empty", why: "a lock would stay locked by a process that has given it up", needs: needLossy,
		run: func(c *check) {
			lose := c.lossy()
			a := c.session()
			c.create(a, "q", writer)
			lose(a)
			b := c.session()
			c.wantNodes("after a loss", c.list(b, "q"))
			p := c.create(b, "q", writer)
			c.wantNodes("after a loss and a Create", c.listAfterWrite(b, "q"), p.Node)
			c.release(b, "q", p)
		}},
}

// lossy makes the case use a store that loses its data when lose is called with
// the sessions that may end.
func (c *check) lossy() (lose func(sessions ...session)) {
	var hook func()
	c.runHook("NewLossy", func() { c.store, hook = c.config.NewLossy(c.t) })
	if c.store == nil || hook == nil {
		c.hookFailed("NewLossy")
		c.fatalf("Config.NewLossy returned no connector, or no function that loses data")
	}
	return func(sessions ...session) {
		for _, s := range sessions {
			c.expectEnd(s)
		}
		c.runHook("NewLossy", hook)
	}
}

func (c *check) wantNoSecondHolder(holder session, p driver.Place, j driver.Joined, nodes []driver.Node) {
	if len(nodes) > 0 && nodes[0] == j.Node && holder.Err() == nil {
		c.fatalf("after the store lost its data, the node %s is the first of its queue, while the lease of %s runs: expected it to end before", j.Name, p.Name)
	}
}
