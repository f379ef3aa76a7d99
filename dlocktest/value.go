package dlocktest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

const (
	whyValue      = "a job that has run would run again, or would never run again"
	whyValueStale = "a holder that has lost its lock would undo what a later holder has noted"
)

var valueCases = []testCase{
	{name: "every-session-reads-what-one-has-set", why: whyValue, needs: needValue,
		run: pair(func(c *check, a, b session) {
			c.wantValue("before a SetValue", a, "q", "", 0)
			p := c.create(a, "q", writer)
			for _, value := range []string{"one", "two", ""} {
				c.setValue(a, "q", p, value)
				c.wantValue("the session that called SetValue", a, "q", value, p.Token)
				c.listAfterWrite(b, "q")
				c.wantValue("another session", b, "q", value, p.Token)
			}
			q := c.create(b, "q", writer)
			c.setValue(b, "q", q, "three")
			c.wantValue("after SetValue by another session", b, "q", "three", q.Token)
			for _, other := range []string{"r", "q/q", "never/was"} {
				c.wantValue("another queue", b, other, "", 0)
			}
		})},
	{name: "a-value-outlives-node-and-session", why: whyValue, needs: needValue, run: pair(func(c *check, a, b session) {
		p, below := c.create(a, "q", writer), c.create(a, "q/below", writer)
		c.setValue(a, "q", p, "value")
		c.setValue(a, "q/below", below, "other")
		c.delete(a, "q", p)
		c.wantValue("after Delete", a, "q", "value", p.Token)
		c.close(a)
		c.listAfterWrite(b, "q")
		c.wantValue("after Close", b, "q", "value", p.Token)
		c.wantValue("a new session, after Close", c.session(), "q/below", "other", below.Token)
	})},
	{name: "a-value-outlives-an-expired-session", why: whyValue, needs: needValue | needDrop,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.setValue(a, "q", p, "value")
			c.expire(a)
			c.listAfterWrite(b, "q")
			c.wantValue("after the session expired", b, "q", "value", p.Token)
		})},
	{name: "the-next-contender-sees-what-the-last-one-set", why: whyValue, needs: needValue,
		run: pair(func(c *check, a, b session) {
			c.rounds(40, func(n int) {
				p := c.create(a, "q", writer)
				q, w := c.waitFor(b, "q", p.Node)
				defer w.Stop()
				c.atOnce(func() {
					c.setValue(a, "q", p, fmt.Sprint(n))
					c.release(a, "q", p)
				}, func() {
					if !c.awaitNews(w, "release of the node ahead") { // a watch may end early
						eventuallyHolds(c, b, "q", "the node ahead", q.Node)
					}
					c.wantValue("the session that waited", b, "q", fmt.Sprint(n), p.Token)
				})
				c.delete(b, "q", q)
			})
		})},
	{name: "set-value-of-a-node-that-is-gone-says-so", why: whyValueStale, needs: needValue,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.setValue(a, "q", p, "value")
			c.delete(a, "q", p)
			c.wantRefused("of a node that is gone", a, "q", p, driver.ErrGone, b)
			c.create(b, "q", writer)
			c.wantRefused("of a node that is gone, before another one", a, "q", p, driver.ErrGone, b)
			c.wantRefused("in a queue that never was", a, "never/was", p, driver.ErrGone, b)
			elsewhere := c.create(a, "r", writer)
			c.wantRefused("of a node of another queue", a, "q", elsewhere, driver.ErrGone, b)
		})},
	{name: "set-value-of-a-removed-node-says-so", why: whyValueStale, needs: needValue | needRemoveNode,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.setValue(a, "q", p, "value")
			c.removeNode("q", p.Name)
			c.wantRefused("of a node that an operator has removed", a, "q", p, driver.ErrGone, b)
		})},
	{name: "set-value-of-an-expired-session-stores-nothing", why: whyValueStale, needs: needValue | needDrop,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.expire(a)
			q := c.create(b, "q", writer)
			c.setValue(b, "q", q, "later")
			if err := driver.Inspect(a).SetValue(c.ctx, "q", p, []byte("late")); err == nil {
				c.errorf("SetValue in a session that has expired returned nil, expected an error")
			}
			c.wantValue("after SetValue of an expired session", b, "q", "later", q.Token)
		})},
	{name: "set-value-spares-a-node-that-took-the-name", why: whyValueStale, needs: needValue | needRemoveQueue,
		run: pair(func(c *check, a, b session) {
			old := c.create(a, "q", writer)
			c.removeQueue("q")
			createNamesakes(c, a, b, "q", old.Node)
			c.wantRefused("with the place of a node of a queue that was removed", a, "q", old, driver.ErrGone, b)
		})},
	{name: "set-value-takes-own-nodes-only", why: whyValueStale, needs: needValue,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.wantRefused("with a node of another session", b, "q", p, nil, a)
		})},
	{name: "an-older-contender-overwrites-nothing", why: whyValueStale, needs: needValue,
		run: pair(func(c *check, a, b session) {
			p, later := c.create(a, "q", reader), c.create(b, "q", reader)
			c.setValue(a, "q", p, "older")
			c.setValue(b, "q", later, "newer")
			c.listAfterWrite(a, "q")
			c.wantRefused("after a later contender", a, "q", p, driver.ErrStale, b)
			c.setValue(b, "q", later, "newer still")
			c.delete(b, "q", later)
			c.wantRefused("after a later contender that has gone", a, "q", p, driver.ErrStale, b)
		})},
	{name: "set-value-checks-and-writes-in-one-step", why: whyValueStale, needs: needValue,
		run: pair(func(c *check, a, b session) {
			// Once another session has seen that the node is gone, the value must not
			// change any more.
			c.rounds(60, func(n int) {
				p := c.create(a, "q", writer)
				set := make(chan error, 1)
				go func() { set <- driver.Inspect(a).SetValue(c.ctx, "q", p, []byte(fmt.Sprint(n))) }()
				holdBriefly()
				c.delete(a, "q", p)
				c.listAfterWrite(b, "q")
				before, token := c.value(b, "q")
				if err := <-set; err != nil && !errors.Is(err, driver.ErrGone) {
					c.mayFail("SetValue that met a Delete", a, c.ctx, err)
				}
				c.listAfterWrite(b, "q")
				c.wantValue("after the node had been seen to be gone", b, "q", string(before), token)
			})
		})},
	{name: "set-value-takes-every-place-that-the-node-had", why: "a holder that has downgraded could not note its work",
		needs: needValue, run: solo(func(c *check, s session) {
			places := []driver.Place{c.create(s, "q", writer)}
			for _, prefix := range []string{shared, "a-longer-prefix-R-"} {
				places = append(places, c.replace(s, "q", places[0], prefix))
				for _, p := range places {
					c.setValue(s, "q", p, p.Name)
					c.wantValue("after Replace", s, "q", p.Name, p.Token)
				}
			}
			c.rounds(40, func(n int) {
				p := c.create(s, "r", writer)
				c.atOnce(func() { c.setValue(s, "r", p, fmt.Sprint(n)) }, func() { c.replace(s, "r", p, shared) })
				c.wantValue("after SetValue that met a Replace", s, "r", fmt.Sprint(n), p.Token)
				c.delete(s, "r", p)
			})
		})},
	{name: "set-value-takes-any-bytes-up-to-the-limit", why: "a checkpoint would come back changed", needs: needValue,
		run: solo(func(c *check, s session) {
			p := c.create(s, "q", writer)
			var all [256]byte
			for i := range all {
				all[i] = byte(i)
			}
			long := bytes.Repeat(all[:], driver.MaxValue/len(all))
			for _, value := range [][]byte{all[:], long, {0}, long[:driver.MaxValue-1], {}} {
				passed := slices.Clone(value)
				c.retry("SetValue", func() error { return driver.Inspect(s).SetValue(c.ctx, "q", p, passed) })
				clear(passed)
				c.wantValue(fmt.Sprintf("after SetValue of %d bytes", len(value)), s, "q", string(value), p.Token)
			}
			err := driver.Inspect(s).SetValue(c.ctx, "q", p, append(long, 0))
			if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded) {
				c.errorf("SetValue of %d bytes returned %v, expected the error of CheckValue", len(long)+1, err)
			}
			c.wantAlive(s, "SetValue of too long a value")
			c.wantValue("after SetValue of too long a value", s, "q", "", p.Token)
		})},
	{name: "a-value-is-no-node", why: "a free lock would look held, for ever", needs: needValue,
		run: pair(func(c *check, a, b session) {
			places := make(map[string]driver.Place)
			for _, queue := range sideBySide {
				places[queue] = c.create(a, queue, writer)
				c.setValue(a, queue, places[queue], "of "+queue)
			}
			for queue, p := range places {
				c.wantNodes("the queue "+queue, c.list(a, queue), p.Node)
				c.wantValue("the queue "+queue, a, queue, "of "+queue, p.Token)
				j := c.join(b, queue, writer, nil)
				c.wantAhead(j, p.Node)
				c.delete(b, queue, j.Place)
				c.delete(a, queue, p)
				c.wantNodes("the queue "+queue+", after Delete", c.listAfterWrite(b, queue))
				c.wantAhead(c.join(b, queue, writer, nil))
			}
			for queue, p := range places {
				c.wantValue("the queue "+queue+", in the end", a, queue, "of "+queue, p.Token)
			}
		})},
	{name: "walk-shows-no-queue-for-its-value", why: "an operator would see a lock that nobody holds or waits for",
		needs: needValue | needWalk, run: solo(func(c *check, s session) {
			p, still := c.create(s, "q", writer), c.create(s, "still", writer)
			c.setValue(s, "q", p, "value")
			c.setValue(s, "still", still, "value")
			c.delete(s, "q", p)
			got := c.walk(s, "")
			// Walk may also return q, whose nodes are gone, but no node in
			// which the store keeps a value.
			got = slices.DeleteFunc(got, func(name string) bool { return name == "q" })
			if strings.Join(got, " ") != "still" {
				c.errorf("Walk returned %q beside q, expected the queue still alone", got)
			}
		})},
	{name: "a-set-value-whose-request-was-lost-can-be-repeated", why: whyValue, needs: needValue | needLoseRequest,
		run: setLost(false)},
	{name: "a-set-value-whose-reply-was-lost-can-be-repeated", why: whyValue, needs: needValue | needLoseReply,
		run: setLost(true)},
	{name: "create-tells-the-time-that-read-tells", why: "a job planned for another day would run now", needs: needValue | needRead,
		run: pair(func(c *check, a, b session) {
			for range 3 { // the first Create in a queue may differ
				j := c.join(a, "q", writer, nil)
				c.listAfterWrite(b, "q")
				if info := c.read(b, "q", j.Name); !j.Created.IsZero() && !j.Created.Equal(info.Created) {
					c.errorf("Create returned the creation time %v, and Read %v, expected the same", j.Created, info.Created)
				}
			}
		})},
}

func (c *check) setValue(s session, queue string, p driver.Place, value string) {
	c.retry(fmt.Sprintf("SetValue(%q, %q)", queue, p.Name), func() error { return driver.Inspect(s).SetValue(c.ctx, queue, p, []byte(value)) })
}

func (c *check) value(s session, queue string) (value []byte, token int64) {
	c.retry(fmt.Sprintf("Value(%q)", queue), func() (err error) {
		value, token, err = driver.Inspect(s).Value(c.ctx, queue)
		return err
	})
	return value, token
}

// wantValue checks the value of a queue and its token. A token of zero means
// that there must be no value.
func (c *check) wantValue(what string, s session, queue, value string, token int64) {
	got, by := c.value(s, queue)
	if string(got) != value || by != token || token == 0 && got != nil {
		c.fatalf("%s: Value returned %d bytes, %.40q, of the token %d, expected %d bytes, %.40q, of %d", what, len(got), got, by, len(value), value, token)
	}
}

// wantRefused checks that SetValue does not change the value, and returns an
// error, which must match kind unless kind is nil.
func (c *check) wantRefused(what string, s session, queue string, p driver.Place, kind error, reader session) {
	c.listAfterWrite(reader, queue)
	before, token := c.value(reader, queue)
	err := driver.Inspect(s).SetValue(c.ctx, queue, p, []byte("refused"))
	c.wantError("SetValue "+what, err, cmp.Or(kind, err))
	if err == nil {
		c.errorf("SetValue %s returned nil, expected an error", what)
	}
	c.listAfterWrite(reader, queue)
	c.wantValue("after SetValue "+what, reader, queue, string(before), token)
}

// sideBySide are queue names that collide with places where a driver might
// store the value of another queue.
var sideBySide = []string{"q", "q/~value", "~value/q", "q/value", "value/q", "kept/q", "~kept/q", "q/q", "q/kept-0000000001", "q~"}

func setLost(committed bool) func(*check) {
	return solo(func(c *check, s session) {
		p := c.create(s, "q", writer)
		c.setValue(s, "q", p, "first")
		c.lose(s, faults.OpSetValue, committed)
		c.mayFail("SetValue whose outcome is unknown", s, c.ctx, driver.Inspect(s).SetValue(c.ctx, "q", p, []byte("second")))
		if s.Err() != nil && c.endedWithConnection(s) {
			return
		}
		c.setValue(s, "q", p, "second")
		c.wantValue("after a repeated SetValue", s, "q", "second", p.Token)
		c.delete(s, "q", p)
	})
}
