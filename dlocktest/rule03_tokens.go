package dlocktest

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const whyTokens = "a resource refuses a token that is smaller than one it has seen: if tokens fall or repeat, " +
	"it refuses the holder, or accepts a process that has lost the lock"

var tokenCases = []testCase{
	{name: "tokens-rise-from-session-to-session", why: whyTokens, run: func(c *check) {
		sessions := []driver.Session{c.session(), c.session(), c.session()}
		var t tokens
		for i := range 30 {
			t.wantHigher(c, c.create(sessions[i%3], "q", fmt.Sprintf("h%d-R-", i%4)))
		}
	}},
	{name: "tokens-rise-under-concurrent-creates", why: whyTokens, run: func(c *check) {
		var t tokens
		for _, p := range createMany(c, "q", 15) {
			t.wantHigher(c, p)
		}
	}},
	{name: "tokens-rise-when-the-queue-becomes-empty", why: whyTokens, run: pair(func(c *check, a, b session) {
		var t tokens
		for range 10 {
			for _, s := range []driver.Session{a, b} {
				p := c.create(s, "q", writer)
				t.wantHigher(c, p)
				c.delete(s, "q", p)
			}
		}
	})},
	{name: "tokens-rise-after-all-sessions-have-closed", why: whyTokens, run: func(c *check) {
		var t tokens
		for range 5 {
			tokensUntilClose(c, &t)
		}
	}},
	{name: "tokens-rise-after-the-queue-was-removed", why: whyTokens, needs: needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			var t tokens
			for range 6 {
				for _, s := range []driver.Session{a, b, a} {
					t.wantHigher(c, c.create(s, "q", writer))
				}
				c.removeQueue("q")
			}
		})},
	{name: "tokens-rise-after-all-was-removed-and-closed", why: whyTokens, needs: needRemoveQueue, run: func(c *check) {
		var t tokens
		for range 4 {
			tokensUntilClose(c, &t)
			c.removeQueue("q")
		}
	}},
	{name: "tokens-rise-across-roll-over", why: whyTokens, needs: needRollOver, run: func(c *check) {
		store := c.nearRollOver()
		a, b := c.sessionOf(store), c.sessionOf(store)
		var t tokens
		again := false
		for i := range 150 {
			s := []driver.Session{a, b}[i%2]
			p := c.create(s, "q", writer)
			again = again || t.any && p.Seq <= t.last.Seq
			checkName(c, p, writer)
			t.wantHigher(c, p)
			c.delete(s, "q", p)
		}
		c.logf("the sequence started over: %v", again)
	}},
	{name: "order-is-kept-across-roll-over", why: "a holder would lose its lock, or two would hold it, on the day on which the sequence ends",
		needs: needRollOver, run: func(c *check) {
			// orderOverRollOver checks the order of nodes that are created while the
			// store's sequences run out. A driver may return ErrUnavailable until old nodes
			// are gone, so the case then deletes the oldest.
			store := c.nearRollOver()
			a, b := c.sessionOf(store), c.sessionOf(store)
			var t tokens
			var queue []driver.Place
			deleteOldest := func() {
				c.delete(a, "q", queue[0])
				queue = queue[1:]
			}
			wait := c.startWait()
			for created := 0; created < 150; {
				c.exitIfAbandoned()
				j, err := a.Create(c.ctx, "q", driver.NodeSpec{Prefix: writer, Data: data()})
				switch {
				case err == nil:
					created++
					wait = c.startWait()
					t.wantHigher(c, j.Place)
					c.wantAhead(j, nodesOf(queue)...)
					queue = append(queue, j.Place)
					c.wantNodes("the queue", c.list(a, "q"), nodesOf(queue)...)
					if len(queue) > 4 {
						deleteOldest()
					}
				case errors.Is(err, driver.ErrUnavailable) && wait.elapsed() < c.config.bound():
					if len(queue) > 0 {
						deleteOldest()
					}
					time.Sleep(retryPause)
				default:
					c.fatalf("Create returned %q near the end of the sequence, expected success, or ErrUnavailable until the older nodes have gone", err)
				}
			}
			c.wantNodes("another session", c.listAfterWrite(b, "q"), nodesOf(queue)...)
		}},
}

// tokens checks that tokens increase within one queue.
type tokens struct {
	any  bool
	last driver.Place
}

func (t *tokens) wantHigher(c *check, p driver.Place) {
	if t.any && p.Token <= t.last.Token {
		c.fatalf("Create returned token %d for %s after token %d for %s, expected a higher one",
			p.Token, p.Name, t.last.Token, t.last.Name)
	}
	t.any, t.last = true, p
}

func tokensUntilClose(c *check, t *tokens) {
	s := c.session()
	t.wantHigher(c, c.create(s, "q", writer))
	t.wantHigher(c, c.create(s, "q", writer))
	c.close(s)
}
