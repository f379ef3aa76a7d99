package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

const (
	whyMark = "a Lock repeats a call after ErrUnavailable, and after no other error: without the mark it fails where it would have " +
		"succeeded, and with a wrong mark the call is repeated for ever"
	whyCtx = "a Lock whose ctx has ended would not return"
)

var methodCases = []testCase{
	{name: "one-session-serves-many-goroutines", why: "a client shares one session among all its locks",
		run: solo(func(c *check, s session) {
			c.together(8, func(i int) {
				queue := fmt.Sprintf("q%d", i%3)
				for range 20 {
					p := c.create(s, queue, fmt.Sprintf("h%d-W-", i))
					w := c.watch(s, queue, p)
					c.watchQueue(s, queue).Stop()
					if nodes := c.list(s, queue); !has(nodes, p.Node) {
						c.fatalf("List returned %v, expected the session's own %v in it", nodes, p.Node)
					}
					if c.can&needRead != 0 {
						c.read(s, queue, p.Name)
					}
					c.delete(s, queue, p)
					c.wantUnreleasedEnd(w, "Delete of the node")
					c.wantAlive(s, "calls from many goroutines")
				}
			})
		})},
	{name: "a-closed-session-says-so", why: whyMark, run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		c.close(s)
		checkEnded(c, s, p)
	})},
	{name: "gone-and-bad-names-are-not-marked-as-passing", why: whyMark, run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		c.delete(s, "q", p)
		if err := s.Delete(c.ctx, "q", p, driver.Changed); errors.Is(err, driver.ErrUnavailable) {
			c.errorf("a repeated Delete returned %q, which matches ErrUnavailable: a Lock would repeat it for ever", err)
		}
		_, err := s.List(c.ctx, "a//b")
		c.wantName("List of a bad queue", err)
	})},
	{name: "a-call-whose-ctx-had-ended-returns", why: whyCtx, run: solo(func(c *check, s session) {
		// The calls may succeed if they need not wait.
		p := c.create(s, "q", writer)
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		for name, call := range c.calls(ctx, s, "q", p) {
			c.wantGivenUp(name, s, ctx, call())
		}
		c.wantAlive(s, "calls whose ctx had ended")
		c.create(s, "q", writer)
	})},
	{name: "a-connect-whose-ctx-had-ended-returns", why: whyCtx, run: func(c *check) {
		ctx, cancel := context.WithCancel(c.ctx)
		cancel()
		for range 3 {
			s, err := c.connector().Connect(ctx)
			switch {
			case err == nil:
				c.close(s)
			case !errors.Is(err, ctx.Err()) && !errors.Is(err, driver.ErrUnavailable):
				c.errorf("Connect whose ctx had ended returned %q, expected the error of its ctx or ErrUnavailable", err)
			}
		}
		c.create(c.session(), "q", writer)
	}},
	{name: "the-ctx-of-connect-is-not-the-session's", why: "every lock of a client would be lost when the call returns in which the session began",
		run: func(c *check) {
			ctx, cancel := context.WithCancel(c.ctx)
			s := ask(c, "Connect", func() (session, error) { return c.connector().Connect(ctx) })
			c.closeLater(s)
			p := c.create(s, "q", writer)
			cancel()
			if !outlives(s, c.config.sessionTimeout()/8) {
				c.fatalf("the session ended with the ctx of Connect (%v), expected it to go on", s.Err())
			}
			c.wantNodes("after the ctx of Connect ended", c.list(s, "q"), p.Node)
			c.delete(s, "q", p)
		}},
	{name: "an-ability-is-there-always-or-never", why: "tools would show a part of the queue, or find some of its locks",
		run: solo(func(c *check, s session) {
			// Even for invalid arguments, an unsupported method must say that
			// it is unsupported, and change nothing.
			p, gone := c.create(s, "q", writer), c.create(s, "q", writer)
			c.delete(s, "q", gone)
			for name, ask := range map[string]func() error{
				"Read":                            func() error { _, err := driver.Inspect(s).Read(c.ctx, "q", p.Name); return err },
				"Read of a node that is gone":     func() error { _, err := driver.Inspect(s).Read(c.ctx, "q", gone.Name); return err },
				"Walk":                            func() error { _, err := driver.Inspect(s).Walk(c.ctx, ""); return err },
				"Walk of a missing queue":         func() error { _, err := driver.Inspect(s).Walk(c.ctx, "never/was"); return err },
				"SetValue":                        func() error { return driver.Inspect(s).SetValue(c.ctx, "q", p, nil) },
				"SetValue of a node that is gone": func() error { return driver.Inspect(s).SetValue(c.ctx, "q", gone, nil) },
				"SetValue as told by Value":       func() error { _, _, err := driver.Inspect(s).Value(c.ctx, "q"); return err },
				"Remove":                          func() error { return driver.Inspect(s).Remove(c.ctx, "q", gone) },
				"Remove in a missing queue":       func() error { return driver.Inspect(s).Remove(c.ctx, "never/was", p) },
			} {
				method, _, _ := strings.Cut(name, " ")
				can := c.can&needNamed(method) != 0
				for range 4 {
					if err := ask(); errors.Is(err, errors.ErrUnsupported) == can {
						c.errorf("%s returned %v, and an earlier call of %s %s: expected a method to be supported in every call or in none",
							name, err, method, map[bool]string{true: "was supported", false: "was not"}[can])
					}
				}
			}
			c.wantNodes("after calls of optional methods", c.listAfterWrite(s, "q"), p.Node)
			c.delete(s, "q", p)
		})},
	{name: "a-call-while-cut-off-returns-when-its-ctx-ends", why: whyCtx, needs: needCutOff, run: func(c *check) {
		// The ctx ends long before the session, which would end the calls as well.
		timeout := c.config.sessionTimeout()
		for name := range inEveryTry(func() map[string]bool {
			s := c.session()
			p := c.create(s, "q", writer)
			c.cutOff(s)
			ctx, cancel := context.WithTimeout(c.ctx, timeout/10)
			defer cancel()
			go func() { _, _ = s.List(c.ctx, "q") }() // which must not block other calls
			return lateCalls(c, ctx, s, p, timeout*4/10, func() { <-ctx.Done() })
		}) {
			c.errorf("%s while cut off had not returned %v after its ctx had ended, in every try: expected it to return when its ctx ends",
				name, timeout*4/10)
		}
	}},
	{name: "a-call-while-cut-off-fails-as-unavailable", why: whyMark, needs: needCutOff,
		run: solo(func(c *check, s session) {
			p := c.create(s, "q", writer)
			pending := c.calls(c.ctx, s, "q", p)
			names := slices.Collect(maps.Keys(pending))
			c.cutOff(s)
			c.together(len(names), func(i int) {
				c.mayFail(names[i]+" while cut off", s, c.ctx, pending[names[i]]())
			})
			c.awaitSessionEnd(s, "the session was cut off")
		})},
}
