package dlocktest

import "github.com/dlock-go/dlock/driver"

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
