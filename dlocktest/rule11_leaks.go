package dlocktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

const whyLeak = "a program that runs for months would fill its memory with what its sessions leave"

var leakCases = []testCase{
	{name: "close-leaves-no-goroutine", why: whyLeak, run: func(c *check) {
		c.close(c.session())
		c.leaks("Connect, use and Close", 8, 8, func() { comeAndGo(c) })
	}},
	{name: "close-leaves-no-connection", why: whyLeak, run: func(c *check) {
		const n = 8
		comeAndGo(c)
		before, known := openFiles()
		if !known {
			c.logf("this system does not show how many connections are open")
			return
		}
		for range n {
			comeAndGo(c)
		}
		c.eventually(func() (any, bool) {
			after, _ := openFiles()
			left := added(before, after)
			return left, left < n
		}, "after %d times Connect, use and Close, fewer than %d files and connections are open that were not open before, "+
			"be it by the driver or by a proxy of the test", n, n)
	}},
	{name: "close-while-cut-off-leaves-no-goroutine", why: whyLeak, needs: needCutOff, run: func(c *check) {
		// The sessions close concurrently, because each Close may take a session
		// timeout.
		const n = 4
		visit := func(cut bool) {
			sessions, heals := c.sessions(n), make([]func(), n)
			for i, s := range sessions {
				makeNodesAndWatches(c, s)
				c.expectEnd(s)
				heals[i] = func() {}
				if cut {
					heals[i] = c.cutOff(s)
				}
			}
			c.together(n, func(i int) { _ = sessions[i].Close() })
			for _, heal := range heals {
				heal()
			}
		}
		visit(false)
		c.leaks("Connect, use, and Close while cut off", n, 1, func() { visit(true) })
	}},
	{name: "calls-in-flight-end-with-close", why: "a call that goes on may send its request after Close, when the session has ended and the program may have closed the store",
		needs: needCutOff, run: func(c *check) {
			timeout := c.config.sessionTimeout()
			for name := range inEveryTry(func() map[string]bool {
				s := c.session()
				p := c.create(s, "q", writer)
				c.cutOff(s)
				return lateCalls(c, c.ctx, s, p, timeout/4, func() {
					time.Sleep(timeout / 20) // give the calls time to be sent
					_ = s.Close()
				})
			}) {
				c.errorf("%s, in flight when Close was called while cut off, had not returned %v after Close, in every try: expected Close to end it and to wait for it",
					name, timeout/4)
			}
		}},
	{name: "a-connect-given-up-leaves-no-goroutine", why: whyLeak, run: func(c *check) {
		begin := time.Now()
		c.close(c.session())
		usual := time.Since(begin)
		c.leaks("a Connect that was given up", 12, 12, func() {
			ctx, cancel := context.WithTimeout(c.ctx, rand.N(usual+1))
			defer cancel()
			if s, err := c.connector().Connect(ctx); err == nil {
				c.closeLater(s)
				c.close(s)
			}
		})
	}},
	{name: "a-watch-that-is-stopped-leaves-no-goroutine", why: whyLeak, run: solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		c.leaks("a watch that was stopped", 50, 50, func() {
			q := c.join(s, "q", writer, last)
			for _, w := range []driver.Watch{
				c.watch(s, "q", p), c.watch(s, "q", q.Place, p.Node), c.watchQueue(s, "q"), c.watchQueue(s, "missing"), q.Watch,
			} {
				w.Stop()
			}
			c.delete(s, "q", q.Place)
		})
		c.wantAlive(s, "watches that were stopped")
	})},
	{name: "a-call-given-up-leaves-no-goroutine", why: whyLeak, run: solo(func(c *check, s session) {
		usual := createTime(c, s)
		ended, end := context.WithCancel(c.ctx)
		end()
		c.leaks("a call that was given up", 50, 50, func() {
			_, _ = tryCreate(ended, s, "q", writer)
			_, _ = s.List(ended, "q")
			ctx, cancel := context.WithTimeout(c.ctx, rand.N(usual+1))
			defer cancel()
			if p, err := tryCreate(ctx, s, "q", fmt.Sprintf("h%d-W-", rand.N(10))); err == nil {
				_ = s.Delete(ctx, "q", p, driver.Changed)
			}
			_, _ = s.List(ctx, "q")
		})
		c.wantAlive(s, "calls whose ctx ended")
	})},
	{name: "an-overload-leaves-nothing", why: "a store that was overloaded once would stay slow, or block the lock, when the load is gone", run: solo(func(c *check, s session) {
		// Most of these calls fail. Fewer than 200 more goroutines are no leak,
		// because a connection pool may keep some.
		usual := createTime(c, s)
		clients := []*client{c.client(), c.client(), c.client()}
		for _, cl := range clients {
			c.unlock(cl.lock())
		}
		c.leaks("a rush of calls with short deadlines", 200, 1, func() {
			c.together(8*len(clients), func(i int) {
				clients[i%len(clients)].giveUp(20, usual, func(l *dlock.Lock) { _ = l.Unlock() })
			})
		})
		c.idleLockIsFree(s)
	})},
}

// leaks fails if n or more new goroutines of one kind are left. Fewer may be
// those started once per process.
func (c *check) leaks(what string, n, times int, do func()) {
	before := goroutines()
	for range times {
		c.exitIfAbandoned()
		do()
	}
	c.eventually(func() (any, bool) {
		kind, stack := grown(before, goroutines(), n)
		return kind + ", such as\n" + stack, kind == ""
	}, "there are fewer than %d goroutines more of one kind after %d times %s", n, times, what)
}

type group struct {
	count int
	stack string
}

func grown(before, after map[string]group, by int) (kind, stack string) {
	for k, g := range after {
		if g.count-before[k].count >= by {
			return k, g.stack
		}
	}
	return "", ""
}

// goroutines returns all goroutines by their kind: the function that they run,
// and the function that started them.
func goroutines() map[string]group {
	groups := make(map[string]group)
	for _, stack := range strings.Split(stacks(), "\n\n") {
		if m := startedBy.FindStringSubmatch(stack); m != nil {
			kind := m[1] + ", " + m[2]
			groups[kind] = group{groups[kind].count + 1, stack}
		}
	}
	return groups
}

var startedBy = regexp.MustCompile(`(?m)^(.+)\(.*\)\n\t.+\ncreated by (\S+)`)

func makeNodesAndWatches(c *check, s session) {
	p := c.create(s, "q", writer)
	q := c.join(s, "q", reader, last)
	c.list(s, "q")
	c.watch(s, "q", q.Place, p.Node)
	c.watch(s, "q", p)
	c.watchQueue(s, "q")
	c.watchQueue(s, "missing")
}

func comeAndGo(c *check) {
	s := c.session()
	makeNodesAndWatches(c, s)
	c.close(s)
}

// openFiles counts file descriptors by file or socket, so that a connection
// that closes does not hide one that leaks.
func openFiles() (files map[string]int, known bool) {
	entries, err := os.ReadDir("/proc/self/fd")
	files = make(map[string]int)
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			files[target]++
		}
	}
	return files, err == nil
}

func added(before, after map[string]int) (n int) {
	for target, count := range after {
		n += max(0, count-before[target])
	}
	return n
}
