package dlocktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

const whyLapsed = "after an outage a client would wait for a session timeout behind its own old nodes, which it cannot use any more"

var closeCases = []testCase{
	{name: "close-removes-the-nodes", why: whyClose, run: solo(func(c *check, b session) {
		for round := range 5 {
			a := c.session()
			for i := range 8 {
				c.create(a, fmt.Sprintf("q%d", i%3), writer)
			}
			c.close(a)
			for i := range 3 {
				c.wantNodes(fmt.Sprintf("after Close of the session that had made the nodes (round %d)", round),
					c.listAfterWrite(b, fmt.Sprintf("q%d", i)))
			}
		}
	})},
	{name: "close-spares-the-nodes-of-others", why: "one process would unlock the locks of another process",
		run: pair(func(c *check, a, b session) {
			c.create(a, "q", writer)
			p := c.create(b, "q", writer)
			c.create(a, "q", writer)
			c.close(a)
			c.wantNodes("after Close of another session", c.listAfterWrite(b, "q"), p.Node)
			c.wantAlive(b, "Close of another session")
		})},
	{name: "done-closes-before-the-nodes-go", why: whyEnd, run: solo(func(c *check, next session) {
		for range 10 {
			holder := c.session()
			p := c.create(holder, "q", writer)
			c.atOnce(func() { c.close(holder) }, func() {
				waitGone(c, next, "q", p.Node)
				if !closed(holder.Done()) {
					c.fatalf("another session saw the node gone while Done was open, expected Close to close Done before the nodes go")
				}
				c.wantEnded("Err", holder.Err())
			})
		}
	})},
	{name: "a-second-close-does-nothing", why: "programs close a session twice: with defer, and when they handle an error",
		run: pair(func(c *check, a, b session) {
			c.create(a, "q", writer)
			c.close(a)
			p := c.create(b, "q", writer)
			for range 3 {
				if err := a.Close(); err != nil {
					c.errorf("a second Close returned %q, expected nil as from the first one", err)
				}
			}
			c.wantNodes("after a second Close", c.listAfterWrite(b, "q"), p.Node)
		})},
	{name: "concurrent-closes-return-alike", why: "programs close a session twice: with defer, and when they handle an error",
		run: solo(func(c *check, b session) {
			for range 5 {
				a := c.session()
				c.create(a, "q", writer)
				c.expectEnd(a)
				var results [4]string
				c.together(len(results), func(i int) {
					results[i] = fmt.Sprint(a.Close())
					c.wantEnded("Err", a.Err())
				})
				if results != [4]string{results[0], results[0], results[0], results[0]} {
					c.errorf("concurrent calls of Close returned %v, expected the same of all", results)
				}
				c.wantNodes("after concurrent calls of Close", c.listAfterWrite(b, "q"))
			}
		})},
	{name: "close-leaves-nothing-of-calls-in-flight", why: whyOrphan, run: solo(func(c *check, b session) {
		usual := createTime(c, b)
		c.rounds(8, func(int) {
			a := c.session()
			p := c.create(a, "q", writer)
			calls := func() {
				for n := 0; ; n++ {
					c.exitIfAbandoned()
					ctx, cancel := soonEnded(c.ctx, n, 2*usual)
					q, err := tryCreate(ctx, a, "q", writer)
					cancel()
					if err == nil {
						err = a.Delete(c.ctx, "q", q, driver.Released)
					}
					if err != nil && a.Err() != nil {
						c.wantEnded("a call after Close", a.Delete(c.ctx, "q", p, driver.Changed))
						return
					}
				}
			}
			c.atOnce(func() { c.close(a) }, calls, calls, calls)
			c.wantNodes("after Close with calls in flight", c.listAfterWrite(b, "q"))
		})
		time.Sleep(c.config.sessionTimeout() / 20)
		c.wantNodes("a while after Close with calls in flight", c.listAfterWrite(b, "q"))
	})},
	{name: "a-create-that-arrives-after-close-leaves-nothing", why: whyOrphan, needs: needHoldRequest, idle: true,
		run: solo(func(c *check, b session) {
			for range 3 {
				a := c.session()
				c.create(a, "q", writer)
				arrive := c.holdRequest(a, faults.OpCreate)
				ctx, cancel := c.shortly()
				_, err := tryCreate(ctx, a, "q", writer)
				cancel()
				createFailed(c, a, ctx, err)
				closeRetrying(c, a)
				arrive()
				c.wantNodes("after a Create arrived whose session had been closed", c.listAfterWrite(b, "q"))
			}
		})},
	{name: "close-of-a-session-that-expired-returns", why: "a program whose session has ended could not exit", needs: needDrop,
		run: pair(func(c *check, a, b session) {
			c.create(a, "q", writer)
			c.expire(a)
			c.awaitSessionEnd(a, "the store ended the session")
			eventuallyHolds(c, b, "q", "a session that expired")
			p := c.create(b, "q", writer)
			_ = c.closeInTime(a, "that had expired")
			c.wantNodes("after Close of a session that had expired", c.listAfterWrite(b, "q"), p.Node)
		})},
	{name: "close-ends-a-session-whose-lease-has-run-out", why: whyLapsed, needs: needCutOff,
		run: closeHealed("whose lease had run out", func(c *check, s session) { c.awaitSessionEnd(s, "the session was cut off") })},
	{name: "close-that-failed-can-be-repeated", why: whyLapsed, needs: needCutOff,
		run: closeHealed("whose first Close had failed", func(_ *check, s session) { _ = s.Close() })},
	{name: "close-cut-off-at-any-time-leaves-nothing", why: whyOrphan, needs: needCutOff, run: func(c *check) {
		// The nodes must go when the store ends the sessions, however far Close has
		// come.
		const queues = 5
		next := c.session()
		full := func() driver.Session {
			s := c.session()
			for i := range queues {
				c.create(s, fmt.Sprintf("q%d", i), writer)
			}
			return s
		}
		first := full()
		begin := time.Now()
		c.close(first)
		usual := time.Since(begin)
		c.together(6, func(int) {
			s := full()
			c.expectEnd(s)
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			time.Sleep(rand.N(usual))
			c.cutOff(s)
			<-closed
		})
		for i := range queues {
			eventuallyHolds(c, next, fmt.Sprintf("q%d", i), "a session that was cut off in Close")
		}
	}},
	{name: "close-while-cut-off-returns", why: "a program could not exit while its store cannot be reached", needs: needCutOff,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			heal := c.cutOff(a)
			for _, which := range []string{"the first", "a second"} {
				switch err := c.closeInTime(a, "that was cut off"); {
				case err == nil && has(c.listAfterWrite(b, "q"), p.Node):
					c.errorf("%s Close returned nil and the session's node is there, expected an error that matches ErrUnavailable", which)
				case err != nil && !errors.Is(err, driver.ErrUnavailable):
					c.errorf("%s Close of a session that was cut off returned %q, expected an error that matches ErrUnavailable", which, err)
				}
				checkEnded(c, a, p)
			}
			heal()
			eventuallyHolds(c, b, "q", "a session that was closed while cut off")
		})},
}

func (c *check) closeInTime(s session, which string) error {
	begin := time.Now()
	err := s.Close()
	if took := time.Since(begin); took > closeGrace {
		c.errorf("Close of a session %s took %v, expected a few seconds", which, took)
	}
	return err
}

func closeHealed(after string, end func(c *check, s session)) func(*check) {
	return pair(func(c *check, a, b session) {
		c.create(a, "q", writer)
		heal := c.cutOff(a)
		end(c, a)
		heal()
		closeRetrying(c, a)
		c.wantNodes("after Close of a session "+after, c.listAfterWrite(b, "q"))
	})
}

// closeRetrying retries, because Close may fail if the connection broke.
func closeRetrying(c *check, s driver.Session) {
	var err error
	for range 5 {
		if err = s.Close(); err == nil {
			return
		}
	}
	c.fatalf("Close returned %q five times while the store could be reached, expected nil", err)
}
