package dlocktest

import "github.com/dlock-go/dlock/driver"

// queueSeesTheOnlySession watches a queue from the store's only session,
// because the requests of another session might alert the driver to the change.
func queueSeesTheOnlySession(c *check) {
	s := c.session()
	for range 2 {
		w := c.watchQueue(s, "q")
		p := c.create(s, "q", writer)
		c.wantUnreleasedEnd(w, "Create by the only session")
		w = c.watchQueue(s, "q")
		c.delete(s, "q", p)
		c.wantUnreleasedEnd(w, "Delete by the only session")
	}
}

func watchSeesCreation(c *check, a, _ driver.Session) func() {
	return func() { c.create(a, "q", reader) }
}

func watchSeesCreateAndDelete(c *check, a, b driver.Session) func() {
	c.create(b, "q", writer)
	return func() { c.delete(a, "q", c.create(a, "q", reader)) }
}

func watchSeesClose(c *check, a, _ driver.Session) func() {
	c.create(a, "q", writer)
	return func() { c.close(a) }
}

func watchSeesRemoval(c *check, a, _ driver.Session) func() {
	c.create(a, "q", writer)
	return func() { c.removeQueue("q") }
}

func watchSeesReplace(prefixes ...string) func(c *check, a, _ driver.Session) (change func()) {
	return func(c *check, a, _ driver.Session) func() {
		p := c.create(a, "q", writer)
		return func() {
			for _, prefix := range prefixes {
				p = c.replace(a, "q", p, prefix)
			}
		}
	}
}

func watchThenList(c *check) {
	a, b := c.twoSessions()
	c.rounds(150, func(int) {
		var p driver.Place
		var w driver.Watch
		var nodes []driver.Node
		c.together(2, func(i int) {
			if i == 0 {
				p = c.create(a, "q", writer)
				return
			}
			w = c.watchQueue(b, "q")
			nodes = c.list(b, "q")
		})
		if !has(nodes, p.Node) {
			c.wantUnreleasedEnd(w, "Create of %s, which the List after the watch did not show", p.Name)
		}
		c.together(2, func(i int) {
			if i == 0 {
				c.delete(a, "q", p)
				return
			}
			w = c.watchQueue(b, "q")
			nodes = c.list(b, "q")
		})
		if has(nodes, p.Node) {
			c.wantUnreleasedEnd(w, "Delete of %s, which the List after the watch still showed", p.Name)
		}
	})
}

func watchQueueInSilence(c *check) {
	a, b := c.twoSessions()
	watches := []driver.Watch{c.watchQueue(b, "q")}
	c.silenceNotices(b)
	watches = append(watches, c.watchQueue(b, "q"), c.watchQueue(b, "other"))
	for _, queue := range []string{"q", "other"} {
		c.create(a, queue, writer)
	}
	wantUnreleasedEnds(c, watches, "Create in the queue while no notice reached the watching session")
}
