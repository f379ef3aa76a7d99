package dlocktest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var checkCases = []testCase{
	{name: "check-finds-no-problem-in-a-healthy-store", why: "an operator would take what was not checked for healthy, or could not do what is advised",
		needs: needCheck, run: func(c *check) {
			c.session() // makes the driver create its tables
			found := c.findings()
			if len(found) == 0 {
				c.errorf("Check returned no findings, expected at least one")
			}
			for _, f := range found {
				switch {
				case f.Level == driver.Problem:
					c.errorf("Check of a healthy store returned %q with the level problem", f.Text)
				case strings.TrimSpace(f.Text) == "":
					c.errorf("Check returned a finding with nothing but the level %v", f.Level)
				case f.Level == driver.Warning && f.Advice == "":
					c.errorf("Check returned %q, and did not say what to do", f.Text)
				case f.Level == driver.OK && f.Advice != "":
					c.errorf("Check returned %q with the level ok, and the advice %q", f.Text, f.Advice)
				}
			}
		}},
	{name: "check-leaves-nothing-behind", why: "a health check that runs every hour would fill the store", needs: needCheck | needWalk,
		run: solo(func(c *check, s session) {
			c.create(s, "stock/42", writer)
			before := c.walk(s, "")
			c.findings()
			c.eventually(func() (any, bool) { // a session left open must expire first
				after := c.walk(s, "")
				return after, slices.Equal(before, after)
			}, "the queues after Check are %q, as before", before)
		})},
	{name: "check-does-not-disturb-a-lock", why: "a health check would take a lock away from its holder", needs: needCheck,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "stock/42", writer)
			q := c.create(b, "stock/42", writer)
			c.findings()
			if nodes := c.list(a, "stock/42"); !has(nodes, p.Node) || !has(nodes, q.Node) || len(nodes) != 2 {
				c.errorf("after Check the queue of a lock has %v, expected %v and %v", nodes, p.Node, q.Node)
			}
		})},
	{name: "check-ends-with-its-context", why: "a service that is told to stop would wait for its health check", needs: needCheck,
		run: func(c *check) {
			c.session()
			ctx, cancel := context.WithCancel(c.ctx)
			cancel()
			_, err := c.connector().(driver.Checker).Check(ctx)
			if !errors.Is(err, context.Canceled) && !errors.Is(err, driver.ErrUnavailable) {
				c.errorf("Check whose ctx had ended returned %v, expected the error of its ctx or ErrUnavailable", err)
			}
		}},
}

func (c *check) findings() []driver.Finding {
	found, err := c.connector().(driver.Checker).Check(c.ctx)
	if err != nil {
		c.fatalf("Check of a healthy store returned %q, expected success", err)
	}
	return found
}
