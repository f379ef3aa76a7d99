package dlocktest

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

func (c *check) watch(s session, queue string, p driver.Place, ahead ...driver.Node) driver.Watch {
	return c.arm(fmt.Sprintf("Watch(%q, %q)", queue, p.Name), func() (driver.Watch, error) { return s.Watch(c.ctx, queue, p, ahead...) })
}

func (c *check) watchQueue(s session, queue string) driver.Watch {
	return c.arm(fmt.Sprintf("WatchQueue(%q)", queue), func() (driver.Watch, error) { return s.WatchQueue(c.ctx, queue) })
}

func (c *check) arm(what string, call func() (driver.Watch, error)) driver.Watch {
	w := ask(c, what, call)
	if w.C == nil {
		c.fatalf("%s returned neither a channel nor an error", what)
	}
	return w
}

func (c *check) waitFor(s session, queue string, ahead ...driver.Node) (driver.Place, driver.Watch) {
	p := c.create(s, queue, "wait-R-")
	return p, c.watch(s, queue, p, ahead...)
}

func (c *check) waitOnce(s, other session, queue string) {
	ahead := c.create(other, queue, writer)
	p, w := c.waitFor(s, queue, ahead.Node)
	c.delete(other, queue, ahead)
	c.awaitNews(w, "Delete of the node ahead")
	c.delete(s, queue, p)
}

// waitGone waits until a node is gone, as locks wait for their predecessor.
func waitGone(c *check, s session, queue string, n driver.Node) {
	own := c.create(s, queue, "wait-R-")
	for {
		c.exitIfAbandoned()
		w := c.watch(s, queue, own, n)
		if !has(c.list(s, queue), n) {
			w.Stop()
			return
		}
		c.wantUnreleasedEnd(w, "the end of %s", n.Name)
	}
}

func (c *check) isReleased(cause driver.Cause) bool {
	if cause != driver.Released && cause != driver.Changed {
		c.fatalf("the watch sent the unknown Cause %d", cause)
	}
	return cause == driver.Released
}

func hasNews(ch <-chan driver.Cause) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (c *check) awaitNews(w driver.Watch, after string, args ...any) (released bool) {
	cause, open := await(c, w.C, "the watch is still open after %s and has sent nothing, expected Released or its end", fmt.Sprintf(after, args...))
	return open && c.isReleased(cause)
}

func (c *check) awaitEnd(w driver.Watch, after string, args ...any) (released bool) {
	sent := ""
	for {
		cause, open := await(c, w.C, "the watch is still open after %s%s, expected it to close", fmt.Sprintf(after, args...), sent)
		if !open {
			return released
		}
		if c.isReleased(cause) {
			if released {
				c.errorf("the watch sent Released twice, expected it at most once (rule 13)")
			}
			released, sent = true, " and has sent Released"
		}
	}
}

func (c *check) wantUnreleasedEnd(w driver.Watch, after string, args ...any) {
	if c.awaitEnd(w, after, args...) {
		c.errorf("the watch sent Released after %s, expected its end alone: Released is for the release of a node ahead only (rule 13)", fmt.Sprintf(after, args...))
	}
}

func wantUnreleasedEnds(c *check, watches []driver.Watch, after string, args ...any) {
	c.together(len(watches), func(i int) {
		c.wantUnreleasedEnd(watches[i], "%s (watch %d of %d)", fmt.Sprintf(after, args...), i+1, len(watches))
	})
}

// wantEndedWatch checks a watch that Watch has just returned. If a watched node
// is not in the queue, the watch must already have ended.
func (c *check) wantEndedWatch(w driver.Watch, after string, args ...any) {
	if !hasNews(w.C) {
		c.fatalf("Watch returned an open watch after %s, expected one that has ended", fmt.Sprintf(after, args...))
	}
	c.wantUnreleasedEnd(w, after, args...)
}

func (c *check) endsEarly(w driver.Watch) bool {
	select {
	case <-w.C:
		return true
	case <-time.After(c.config.sessionTimeout() / 50):
		return false
	}
}

func nodeWithWatches(c *check, a, b session) (driver.Place, []driver.Watch) {
	p := c.create(a, "q", writer)
	_, first := c.waitFor(b, "q", p.Node)
	q, second := c.waitFor(b, "q", p.Node)
	return p, []driver.Watch{
		c.watch(a, "q", p), c.watch(a, "q", named(p)), first, second, c.watch(b, "q", named(q), p.Node), c.watchQueue(b, "q"),
	}
}

// An event happens to a node of the queue q, to its session or to its queue.
type event struct {
	text string
	play func(c *check, s session, p driver.Place) // p is a node of s
}

func (e event) String() string { return e.text }

var (
	created      = event{"Create of another node", func(c *check, s session, _ driver.Place) { c.create(s, "q", reader) }}
	cameAndWent  = event{"Create and Delete of another node", func(c *check, s session, _ driver.Place) { c.delete(s, "q", c.create(s, "q", reader)) }}
	deleted      = event{"Delete of the node", func(c *check, s session, p driver.Place) { c.delete(s, "q", p) }}
	released     = event{"release of the node", func(c *check, s session, p driver.Place) { c.release(s, "q", p) }}
	replaced     = event{"Replace of the node", func(c *check, s session, p driver.Place) { c.replace(s, "q", p, shared) }}
	replacedBack = event{"Replace of the node, and another one back to the first name", func(c *check, s session, p driver.Place) {
		c.replace(s, "q", c.replace(s, "q", p, shared), writer)
	}}
	closes       = event{"Close of the node's session", func(c *check, s session, _ driver.Place) { c.close(s) }}
	expires      = event{"the store ended the node's session", func(c *check, s session, _ driver.Place) { c.expire(s) }}
	nodeRemoved  = event{"an operator removed the node", func(c *check, _ session, p driver.Place) { c.removeNode("q", p.Name) }}
	queueRemoved = event{"an operator removed the queue, with the node", func(c *check, _ session, _ driver.Place) { c.removeQueue("q") }}
	cutOff       = event{"the node's session was cut off, and ended", func(c *check, s session, _ driver.Place) {
		c.cutOff(s)
		c.awaitSessionEnd(s, "the session was cut off")
	}}
)

// endsWatches returns a case in which a watched node disappears without a
// release. Every watch must end without Released (rules 6 and 13).
func endsWatches(end event) func(*check) {
	return waiters(func(c *check, a, b session) {
		for i := 0; i < 2 && !c.isEnding(a); i++ {
			p, watches := nodeWithWatches(c, a, b)
			end.play(c, a, p)
			wantUnreleasedEnds(c, watches, "%s", end)
		}
	})
}

// endsWatchByName checks watches as observers use. They may end early, but not
// always, because observers would list the queue all the time.
func endsWatchByName(ends ...event) func(*check) {
	return pair(func(c *check, a, b session) {
		early := 0
		for _, end := range ends {
			p := c.create(a, "q", writer)
			w := c.watch(b, "q", named(p))
			behind := c.create(b, "q", writer)
			if c.endsEarly(w) {
				early++
			}
			end.play(c, a, p)
			c.wantUnreleasedEnd(w, "%s, which another session watched", end)
			c.listAfterWrite(b, "q")
			c.wantEndedWatch(c.watch(b, "q", named(p)), "%s", end)
			c.delete(b, "q", behind)
		}
		if early > 1 && early == len(ends) {
			c.errorf("in %d rounds of %d the watch of another session's node ended while that node stood, expected it to go on", early, len(ends))
		}
	})
}

func queueSees(change event) func(*check) {
	return pair(func(c *check, a, b session) {
		for i := 0; i < 2 && !c.isEnding(a); i++ {
			p := c.create(a, "q", writer)
			own, other := c.watchQueue(a, "q"), c.watchQueue(b, "q")
			change.play(c, a, p)
			c.wantUnreleasedEnd(own, "%s by its own session", change)
			c.wantUnreleasedEnd(other, "%s by another session", change)
		}
	})
}

var watchReplaced = pair(func(c *check, a, b session) {
	for range 2 {
		p, watches := nodeWithWatches(c, a, b)
		now := c.replace(a, "q", p, shared)
		wantUnreleasedEnds(c, watches, "Replace of the node")
		q := c.create(b, "q", writer)
		c.wantEndedWatch(c.watch(a, "q", p), "Replace of the own node")
		c.listAfterWrite(b, "q")
		c.wantUnreleasedEnd(c.watch(b, "q", q, p.Node), "it was armed on the name ahead that had been replaced")
		own, other := c.watch(a, "q", now), c.watch(b, "q", q, now.Node)
		c.delete(a, "q", p)
		c.wantUnreleasedEnd(own, "Delete of the own node, which had been replaced")
		c.wantUnreleasedEnd(other, "Delete of the node ahead, which had been replaced")
	}
})

// watchMeetsDelete deletes a node while two sessions are arming watches of it:
// its own session and that of the node behind it.
func watchMeetsDelete(why driver.Cause) func(*check) {
	return pair(func(c *check, a, b session) {
		p := c.create(a, "q", writer)
		c.rounds(300, func(round int) {
			q := c.create(b, "q", writer)
			var own, first, second driver.Watch
			c.atOnce(
				func() { own = c.watch(a, "q", p) },
				func() { first = c.watch(b, "q", q, p.Node) },
				func() { second = c.watch(b, "q", q, p.Node) },
				func() { c.remove(a, "q", p, why) })
			c.wantUnreleasedEnd(own, "Delete of the own node while the watch was being armed (round %d)", round)
			for _, w := range []driver.Watch{first, second} {
				if why == driver.Released {
					c.awaitNews(w, "release of the node ahead while the watch was being armed (round %d)", round)
				} else {
					c.wantUnreleasedEnd(w, "Delete of the node ahead while the watch was being armed (round %d)", round)
				}
				w.Stop()
			}
			a, b, p = b, a, q
		})
	})
}
