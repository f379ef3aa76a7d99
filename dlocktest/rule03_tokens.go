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
		sessions := c.sessions(3)
		var t tokens
		for i := range 30 {
			t.wantHigher(c, c.create(sessions[i%3], "q", fmt.Sprintf("h%d-R-", i%4)))
		}
	}},
	{name: "tokens-rise-under-concurrent-creates", why: whyTokens, run: func(c *check) {
		var t tokens
		for _, p := range createMany(c, 15) {
			t.wantHigher(c, p)
		}
	}},
	{name: "tokens-rise-when-the-queue-becomes-empty", why: whyTokens, run: pair(func(c *check, a, b session) {
		var t tokens
		for range 10 {
			for _, s := range []session{a, b} {
				p := c.create(s, "q", writer)
				t.wantHigher(c, p)
				c.delete(s, "q", p)
			}
		}
	})},
	{name: "tokens-rise-after-all-sessions-have-closed", why: whyTokens, run: tokensOverClose(func(*check) {})},
	{name: "tokens-rise-after-the-queue-was-removed", why: whyTokens, needs: needRemoveQueue, run: pair(func(c *check, a, b session) {
		var t tokens
		for range 6 {
			for _, s := range []session{a, b, a} {
				t.wantHigher(c, c.create(s, "q", writer))
			}
			c.removeQueue("q")
		}
	})},
	{name: "tokens-rise-after-all-was-removed-and-closed", why: whyTokens, needs: needRemoveQueue,
		run: tokensOverClose(func(c *check) { c.removeQueue("q") })},
	{name: "order-is-kept-across-roll-over", why: "a holder would lose its lock, or two would hold it, on the day on which the sequence ends",
		needs: needRollOver, run: func(c *check) {
			store := c.nearRollOver()
			a, b := c.sessionOf(store), c.sessionOf(store)
			var t tokens
			var queue []driver.Place
			var owners []session
			wait := c.startWait()
			for created := 0; created < 150; {
				c.exitIfAbandoned()
				s := []session{a, b}[created%2]
				j, err := tryJoin(c.ctx, s, "q", writer, nil)
				full := len(queue) > 4
				switch {
				case err == nil:
					created++
					wait = c.startWait()
					checkName(c, j.Place, writer)
					t.wantHigher(c, j.Place)
					c.wantAhead(j, nodesOf(queue)...)
					queue, owners = append(queue, j.Place), append(owners, s)
					c.wantNodes("the queue", c.list(s, "q"), nodesOf(queue)...)
				case errors.Is(err, driver.ErrUnavailable) && wait.elapsed() < c.config.bound():
					full = len(queue) > 0 // Create may fail until old nodes are deleted
					time.Sleep(retryPause)
				default:
					c.fatalf("Create returned %q near the end of the sequence, expected success, or ErrUnavailable until the older nodes have gone", err)
				}
				if full {
					c.delete(owners[0], "q", queue[0])
					queue, owners = queue[1:], owners[1:]
				}
			}
		}},
}

type tokens struct{ last *driver.Place }

func (t *tokens) wantHigher(c *check, p driver.Place) {
	if t.last != nil && p.Token <= t.last.Token {
		c.fatalf("Create returned token %d for %s after token %d for %s, expected a higher one", p.Token, p.Name, t.last.Token, t.last.Name)
	}
	t.last = &p
}

func tokensOverClose(then func(c *check)) func(*check) {
	return func(c *check) {
		var t tokens
		for range 5 {
			s := c.session()
			t.wantHigher(c, c.create(s, "q", writer))
			t.wantHigher(c, c.create(s, "q", writer))
			c.close(s)
			then(c)
		}
	}
}
