package dlocktest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var diagnoseCases = []testCase{
	{name: "diagnose-reports-every-check", why: "an operator would take what was not checked for healthy", needs: needDiagnose, run: diagnoseReportsAll},
	{name: "diagnose-leaves-nothing-behind", why: "a health check that runs every hour would fill the store", needs: needDiagnose | needWalk, run: diagnoseLeavesNothing},
	{name: "diagnose-does-not-disturb-a-lock", why: "a health check would take a lock away from its holder", needs: needDiagnose, run: diagnoseDisturbsNothing},
	{name: "diagnose-ends-with-its-context", why: "a service that is told to stop would wait for its health check", needs: needDiagnose, run: diagnoseEnds},
}

// diagnose returns the driver's findings about the case's store, which is
// healthy.
func (c *check) diagnose() (found []driver.Finding) {
	store := c.connector()
	if err := driver.Diagnose(c.ctx, store, func(f driver.Finding) { found = append(found, f) }); err != nil {
		c.fatalf("Diagnose of a healthy store returned %q, expected success", err)
	}
	return found
}

func diagnoseReportsAll(c *check) {
	c.session() // so that the driver creates its tables, if any
	found := c.diagnose()
	for _, name := range driver.Checks() {
		if !slices.ContainsFunc(found, func(f driver.Finding) bool { return f.Check == name }) {
			c.errorf("Diagnose reported nothing for %s, expected at least one finding", name)
		}
	}
	for i, f := range found {
		switch {
		case f.Level == driver.Problem:
			c.errorf("Diagnose of a healthy store reported %q for %s, with the level problem", f.Text, f.Check)
		case strings.TrimSpace(f.Text) == "":
			c.errorf("Diagnose reported nothing but the level %v for %s", f.Level, f.Check)
		case f.Level == driver.Warning && f.Advice == "":
			c.errorf("Diagnose reported %q for %s, and did not say what to do", f.Text, f.Check)
		case f.Level == driver.OK && f.Advice != "":
			c.errorf("Diagnose reported %q for %s with the level ok, and the advice %q", f.Text, f.Check, f.Advice)
		}
		if i > 0 && !c.inOrder(found[i-1].Check, f.Check) {
			c.errorf("Diagnose reported %s after %s, expected the order of driver.Checks", f.Check, found[i-1].Check)
		}
	}
}

// inOrder reports whether the check before may be followed by the check after.
// CheckLogin may follow any other check, because Diagnose closes its session
// last, which may show that the session does not end.
func (c *check) inOrder(before, after driver.Check) bool {
	all := driver.Checks()
	return after == driver.CheckLogin || slices.Index(all, before) <= slices.Index(all, after)
}

func diagnoseLeavesNothing(c *check) {
	s := c.session()
	c.create(s, "stock/42", writer)
	before := c.walk(s)
	c.diagnose()
	var after []string
	defer func() {
		if !slices.Equal(before, after) {
			c.errorf("after Diagnose there are the queues %q, expected %q as before", after, before)
		}
	}()
	c.eventually(func() bool { // a session that was not closed disappears only after the session timeout
		after = c.walk(s)
		return slices.Equal(before, after)
	}, "the queues are those before Diagnose")
}

func (c *check) walk(s driver.Session) (queues []string) {
	c.retry("Walk", func() (err error) {
		queues, err = driver.Inspect(s).Walk(c.ctx, "")
		return err
	})
	return queues
}

func diagnoseDisturbsNothing(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "stock/42", writer)
	q := c.create(b, "stock/42", writer)
	c.diagnose()
	if nodes := c.list(a, "stock/42"); !has(nodes, p.Node) || !has(nodes, q.Node) || len(nodes) != 2 {
		c.errorf("after Diagnose the queue of a lock has %v, expected %v and %v", nodes, p.Node, q.Node)
	}
}

func diagnoseEnds(c *check) {
	c.session()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	store := c.connector()
	var late int
	err := driver.Diagnose(ctx, store, func(driver.Finding) {
		if ctx.Err() != nil {
			late++
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		c.errorf("Diagnose whose ctx was cancelled returned %v, expected an error that matches context.Canceled", err)
	}
	if late > 0 {
		c.errorf("Diagnose reported %d more findings after its ctx was cancelled", late)
	}
}
