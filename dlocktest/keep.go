package dlocktest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

const (
	whyKeep      = "a job that has run would run again, or would never run again"
	whyKeepStale = "a holder that has lost its lock would undo what a later holder has noted"
)

var keepCases = []testCase{
	{name: "every-session-reads-what-one-has-kept", why: whyKeep, needs: needKeep, run: keepAndRead},
	{name: "a-kept-value-outlives-node-and-session", why: whyKeep, needs: needKeep, run: keptOutlives},
	{name: "a-kept-value-outlives-an-expired-session", why: whyKeep, needs: needKeep | needDrop, run: keptOutlivesExpiry},
	{name: "the-next-contender-sees-what-the-last-one-kept", why: whyKeep, needs: needKeep, run: keptIsSeenByNext},
	{name: "keep-of-a-node-that-is-gone-says-so", why: whyKeepStale, needs: needKeep, run: keepGone},
	{name: "keep-of-a-removed-node-says-so", why: whyKeepStale, needs: needKeep | needRemoveNode, run: keepRemoved},
	{name: "keep-of-an-expired-session-stores-nothing", why: whyKeepStale, needs: needKeep | needDrop, run: keepExpired},
	{name: "keep-spares-a-node-that-took-the-name", why: whyKeepStale, needs: needKeep | needRemoveQueue, run: keepNamesake},
	{name: "keep-takes-own-nodes-only", why: whyKeepStale, needs: needKeep, run: keepOther},
	{name: "an-older-contender-overwrites-nothing", why: whyKeepStale, needs: needKeep, run: keepOlder},
	{name: "keep-checks-and-writes-in-one-step", why: whyKeepStale, needs: needKeep, run: keepInOneStep},
	{name: "keep-takes-every-place-that-the-node-had", why: "a holder that has downgraded could not note its work",
		needs: needKeep, run: keepReplaced},
	{name: "keep-takes-any-bytes-up-to-the-limit", why: "a checkpoint would come back changed", needs: needKeep, run: keepBytes},
	{name: "a-kept-value-is-no-node", why: "a free lock would look held, for ever", needs: needKeep, run: keptIsNoNode},
	{name: "walk-shows-no-queue-for-its-value", why: "an operator would see a lock that nobody holds or waits for",
		needs: needKeep | needWalk, run: keptIsNotWalked},
	{name: "keep-and-kept-refuse-a-bad-queue", why: "a name such as a/../b would reach another lock's value", needs: needKeep, run: keepBadQueue},
	{name: "a-keep-whose-request-was-lost-can-be-repeated", why: whyKeep, needs: needKeep | needLoseRequest,
		run: func(c *check) { keepLost(c, false) }},
	{name: "a-keep-whose-reply-was-lost-can-be-repeated", why: whyKeep, needs: needKeep | needLoseReply,
		run: func(c *check) { keepLost(c, true) }},
	{name: "create-tells-the-time-that-read-tells", why: "a job planned for another day would run now", needs: needKeep | needRead, run: createdAt},
}

func (c *check) keep(s driver.Session, queue string, p driver.Place, value string) {
	c.retry(fmt.Sprintf("Keep(%q, %q)", queue, p.Name), func() error { return driver.Keep(c.ctx, s, queue, p, []byte(value)) })
}

func (c *check) kept(s driver.Session, queue string) (value []byte, token int64) {
	c.retry(fmt.Sprintf("Kept(%q)", queue), func() (err error) {
		value, token, err = driver.Kept(c.ctx, s, queue)
		return err
	})
	return value, token
}

// wantKept checks the value that Kept returns for a queue, and its token. A
// token of zero means that there must be no value.
func (c *check) wantKept(what string, s driver.Session, queue, value string, token int64) {
	got, by := c.kept(s, queue)
	if string(got) != value || by != token || token == 0 && got != nil {
		c.fatalf("%s: Kept returned %d bytes, %.40q, of the token %d, expected %d bytes, %.40q, of %d", what, len(got), got, by, len(value), value, token)
	}
}

func keepAndRead(c *check) {
	a, b := c.twoSessions()
	c.wantKept("before a Keep", a, "q", "", 0)
	p := c.create(a, "q", writer)
	for _, value := range []string{"one", "two", ""} {
		c.keep(a, "q", p, value)
		c.wantKept("the session that called Keep", a, "q", value, p.Token)
		c.listAfterWrite(b, "q")
		c.wantKept("another session", b, "q", value, p.Token)
	}
	q := c.create(b, "q", writer)
	c.keep(b, "q", q, "three")
	c.wantKept("after Keep by another session", b, "q", "three", q.Token)
	for _, other := range []string{"r", "q/q", "never/was"} {
		c.wantKept("another queue", b, other, "", 0)
	}
}

func keptOutlives(c *check) {
	a, b := c.twoSessions()
	p, below := c.create(a, "q", writer), c.create(a, "q/below", writer)
	c.keep(a, "q", p, "value")
	c.keep(a, "q/below", below, "other")
	c.delete(a, "q", p)
	c.wantKept("after Delete", a, "q", "value", p.Token)
	c.close(a)
	c.listAfterWrite(b, "q")
	c.wantKept("after Close", b, "q", "value", p.Token)
	c.wantKept("a new session, after Close", c.session(), "q/below", "other", below.Token)
}

func keptOutlivesExpiry(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.keep(a, "q", p, "value")
	c.expire(a)
	c.listAfterWrite(b, "q")
	c.wantKept("after the session expired", b, "q", "value", p.Token)
}

func keptIsSeenByNext(c *check) {
	a, b := c.twoSessions()
	c.rounds(40, func(n int) {
		value := fmt.Sprint(n)
		p := c.create(a, "q", writer)
		q, w := c.waitFor(b, "q", p.Node)
		defer w.Stop()
		c.together(2, func(i int) {
			if i == 0 {
				c.keep(a, "q", p, value)
				c.release(a, "q", p)
				return
			}
			if !c.awaitNews(w, "release of the node ahead") { // a watch may end early
				c.eventually(func() bool { return !has(c.list(b, "q"), p.Node) }, "the node ahead is gone")
			}
			c.wantKept("the session that waited", b, "q", value, p.Token)
		})
		c.delete(b, "q", q)
	})
}

// wantRefused checks that Keep returns an error and does not change the kept
// value. Unless kind is nil, the error must match it.
func (c *check) wantRefused(what string, s driver.Session, queue string, p driver.Place, kind error, reader driver.Session) {
	c.listAfterWrite(reader, queue)
	before, token := c.kept(reader, queue)
	err := driver.Keep(c.ctx, s, queue, p, []byte("refused"))
	switch {
	case err == nil, kind != nil && !errors.Is(err, kind):
		c.errorf("Keep %s returned %v, expected an error that matches %v", what, err, kind)
	case errors.Is(err, driver.ErrUnavailable):
		c.errorf("Keep %s returned %q, which matches ErrUnavailable: a Lock would repeat it for ever", what, err)
	}
	c.listAfterWrite(reader, queue)
	c.wantKept("after Keep "+what, reader, queue, string(before), token)
}

func keepGone(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.keep(a, "q", p, "value")
	c.delete(a, "q", p)
	c.wantRefused("of a node that is gone", a, "q", p, driver.ErrGone, b)
	c.create(b, "q", writer)
	c.wantRefused("of a node that is gone, before another one", a, "q", p, driver.ErrGone, b)
	c.wantRefused("in a queue that never was", a, "never/was", p, driver.ErrGone, b)
	elsewhere := c.create(a, "r", writer)
	c.wantRefused("of a node of another queue", a, "q", elsewhere, driver.ErrGone, b)
}

func keepRemoved(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.keep(a, "q", p, "value")
	c.removeNode("q", p.Name)
	c.wantRefused("of a node that an operator has removed", a, "q", p, driver.ErrGone, b)
}

func keepExpired(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.expire(a)
	q := c.create(b, "q", writer)
	c.keep(b, "q", q, "later")
	if err := driver.Keep(c.ctx, a, "q", p, []byte("late")); err == nil {
		c.errorf("Keep in a session that has expired returned nil, expected an error")
	}
	c.wantKept("after Keep of an expired session", b, "q", "later", q.Token)
}

func keepNamesake(c *check) {
	a, b := c.twoSessions()
	old := c.create(a, "q", writer)
	c.removeQueue("q")
	createNamesakes(c, a, b, "q", old.Node)
	c.wantRefused("with the place of a node of a queue that was removed", a, "q", old, driver.ErrGone, b)
}

func keepOther(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.wantRefused("with a node of another session", b, "q", p, nil, a)
}

func keepOlder(c *check) {
	a, b := c.twoSessions()
	p, later := c.create(a, "q", reader), c.create(b, "q", reader)
	c.keep(a, "q", p, "older")
	c.keep(b, "q", later, "newer")
	c.listAfterWrite(a, "q")
	c.wantRefused("after a later contender", a, "q", p, driver.ErrStale, b)
	c.keep(b, "q", later, "newer still")
	c.delete(b, "q", later)
	c.wantRefused("after a later contender that has gone", a, "q", p, driver.ErrStale, b)
}

// keepInOneStep races Keep with a Delete of its node. Once another session has
// seen that the node is gone, the value must not change any more.
func keepInOneStep(c *check) {
	a, b := c.twoSessions()
	c.rounds(60, func(n int) {
		p := c.create(a, "q", writer)
		kept := make(chan error, 1)
		go func() { kept <- driver.Keep(c.ctx, a, "q", p, []byte(fmt.Sprint(n))) }()
		holdBriefly()
		c.delete(a, "q", p)
		c.listAfterWrite(b, "q")
		before, token := c.kept(b, "q")
		if err := <-kept; err != nil && !errors.Is(err, driver.ErrGone) {
			c.mayFail("Keep that met a Delete", a, c.ctx, err)
		}
		c.listAfterWrite(b, "q")
		c.wantKept("after the node had been seen to be gone", b, "q", string(before), token)
	})
}

func keepReplaced(c *check) {
	s := c.session()
	places := []driver.Place{c.create(s, "q", writer)}
	for _, prefix := range []string{shared, "a-longer-prefix-R-"} {
		places = append(places, c.replace(s, "q", places[0], prefix))
		for _, p := range places {
			c.keep(s, "q", p, p.Name)
			c.wantKept("after Replace", s, "q", p.Name, p.Token)
		}
	}
}

func keepBytes(c *check) {
	s := c.session()
	p := c.create(s, "q", writer)
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	long := bytes.Repeat(all[:], driver.MaxValue/len(all))
	for _, value := range [][]byte{all[:], long, {0}, long[:driver.MaxValue-1], {}} {
		passed := slices.Clone(value)
		c.retry("Keep", func() error { return driver.Keep(c.ctx, s, "q", p, passed) })
		clear(passed)
		c.wantKept(fmt.Sprintf("after Keep of %d bytes", len(value)), s, "q", string(value), p.Token)
	}
	err := driver.Keep(c.ctx, s, "q", p, append(long, 0))
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded) {
		c.errorf("Keep of %d bytes returned %v, expected the error of CheckValue", len(long)+1, err)
	}
	c.wantAlive(s, "Keep of too long a value")
	c.wantKept("after Keep of too long a value", s, "q", "", p.Token)
}

// sideBySide are queue names that collide with places where a driver might
// store the value of another queue.
var sideBySide = []string{"q", "q/~value", "~value/q", "q/value", "value/q", "kept/q", "~kept/q", "q/q", "q/kept-0000000001", "q~"}

func keptIsNoNode(c *check) {
	a, b := c.twoSessions()
	places := make(map[string]driver.Place)
	for _, queue := range sideBySide {
		places[queue] = c.create(a, queue, writer)
		c.keep(a, queue, places[queue], "of "+queue)
	}
	for queue, p := range places {
		c.wantNodes("the queue "+queue, c.list(a, queue), p.Node)
		c.wantKept("the queue "+queue, a, queue, "of "+queue, p.Token)
		j := c.join(b, queue, writer, nil)
		c.wantAhead(j, p.Node)
		c.delete(b, queue, j.Place)
		c.delete(a, queue, p)
		c.wantNodes("the queue "+queue+", after Delete", c.listAfterWrite(b, queue))
		c.wantAhead(c.join(b, queue, writer, nil))
	}
	for queue, p := range places {
		c.wantKept("the queue "+queue+", in the end", a, queue, "of "+queue, p.Token)
	}
}

func keptIsNotWalked(c *check) {
	s := c.session()
	p, still := c.create(s, "q", writer), c.create(s, "still", writer)
	c.keep(s, "q", p, "value")
	c.keep(s, "still", still, "value")
	c.delete(s, "q", p)
	var got []string
	c.retry("Walk", func() (err error) {
		got, err = driver.Walk(c.ctx, s, "")
		return err
	})
	// Walk may return q, which has no nodes any more. It must return nothing
	// else, such as a node in which the store keeps the value of a queue.
	got = slices.DeleteFunc(got, func(name string) bool { return name == "q" })
	if strings.Join(got, " ") != "still" {
		c.errorf("Walk returned %q beside q, expected the queue still alone", got)
	}
}

func keepBadQueue(c *check) {
	s := c.session()
	p := c.create(s, "q", writer)
	for _, queue := range []string{"", "/q", "q/", "q//r", "..", "q/../q", "a\n", "a\x00"} {
		c.wantName(fmt.Sprintf("Keep in the queue %q", queue), driver.Keep(c.ctx, s, queue, p, []byte("value")))
		_, _, err := driver.Kept(c.ctx, s, queue)
		c.wantName(fmt.Sprintf("Kept of the queue %q", queue), err)
	}
	c.wantKept("after Keep in bad queues", s, "q", "", 0)
}

func keepLost(c *check, committed bool) {
	s := c.session()
	p := c.create(s, "q", writer)
	c.keep(s, "q", p, "first")
	c.lose(s, faults.OpKeep, committed)
	c.mayFail("Keep whose outcome is unknown", s, c.ctx, driver.Keep(c.ctx, s, "q", p, []byte("second")))
	if s.Err() != nil && c.endedWithConnection(s) {
		return
	}
	c.keep(s, "q", p, "second")
	c.wantKept("after a repeated Keep", s, "q", "second", p.Token)
	c.delete(s, "q", p)
}

// createdAt checks that the creation time returned by Create, if any, is the
// one that Read returns.
func createdAt(c *check) {
	a, b := c.twoSessions()
	for range 3 { // the first Create in a queue may differ from later ones
		j := c.join(a, "q", writer, nil)
		c.listAfterWrite(b, "q")
		if info := c.read(b, "q", j.Name); !j.Created.IsZero() && !j.Created.Equal(info.Created) {
			c.errorf("Create returned the creation time %v, and Read %v, expected the same", j.Created, info.Created)
		}
	}
}
