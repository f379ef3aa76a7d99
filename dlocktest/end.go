package dlocktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const whyEnd = "a holder that does not know of its session's end goes on writing beside the next holder"

var endCases = []testCase{
	{name: "a-living-session-says-so", why: "every lock would be lost as soon as it is won", run: endNotYet},
	{name: "an-idle-session-lives-on", why: "every lock that is held for longer than a session timeout would be lost", run: endIdle},
	{name: "an-expired-session-says-so", why: whyEnd, needs: needDrop, run: endExpired},
	{name: "an-expired-session-takes-no-other-with-it", why: "the end of one client would be the end of all", needs: needDrop, run: endExpiredAlone},
	{name: "a-session-cut-off-ends-before-another-passes", why: whyEnd, needs: needCutOff, run: endBeforePass},
	{name: "a-session-cut-off-ends-with-time-to-spare",
		why:   "the clocks of two machines drift: a lease as long as the store's timeout may end after it",
		needs: needCutOff, run: endWithMargin},
	{name: "slow-replies-do-not-prolong-a-session",
		why:   "the store counts from the time at which a request arrives: a lease that counts from the reply ends after the store's timeout",
		needs: needCutOff | needDelayReplies, run: endAfterSlowReplies},
	{name: "a-session-cut-off-closes-done-unasked", why: whyEnd, needs: needCutOff, run: endUnasked},
	{name: "a-session-that-ended-never-lives-again", why: "a holder that was told of its loss would be told that it holds, without its node",
		needs: needCutOff, run: endForEver},
	{name: "a-paused-process-learns-the-truth-at-once", why: "a process that slept past its session would go on writing until its timers have run",
		needs: needPause, run: endPaused},
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func endNotYet(c *check) {
	s := c.session()
	c.delete(s, "q", c.create(s, "q", writer))
	if closed(s.Done()) {
		c.errorf("Done is closed in a session that lives, expected it to be open")
	}
	if s.Done() == nil {
		c.errorf("Done returned nil, expected a channel")
	}
	c.wantAlive(s, "Create and Delete")
}

// endIdle needs no second try of its own: a session that is lost without a cause
// repeats the case.
func endIdle(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	select {
	case <-a.Done():
		c.fatalf("an idle session with its store in reach ended: %v", a.Err())
	case <-time.After(2 * c.config.sessionTimeout()):
	}
	c.wantAlive(a, "two session timeouts without a call")
	c.wantNodes("after two session timeouts without a call", c.settled(b, "q"), p.Node)
}

// calls are the methods of a session that ask the store. The optional ones are
// among them if the session has them.
func calls(ctx context.Context, s driver.Session, p driver.Place) map[string]func() error {
	optional := func(err error) error {
		if errors.Is(err, errors.ErrUnsupported) {
			return s.Err()
		}
		return err
	}
	return map[string]func() error{
		"Create": func() error { _, err := tryCreate(ctx, s, "q", writer); return err },
		"Create with Predecessor": func() error {
			_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: writer, Data: data(), Predecessor: last})
			return err
		},
		"List":       func() error { _, err := s.List(ctx, "q"); return err },
		"Watch":      func() error { _, err := s.Watch(ctx, "q", p); return err },
		"WatchQueue": func() error { _, err := s.WatchQueue(ctx, "q"); return err },
		"Delete":     func() error { return s.Delete(ctx, "q", p, driver.Changed) },
		"Replace":    func() error { _, err := driver.Replace(ctx, s, "q", p, shared); return optional(err) },
		"Read":       func() error { _, err := driver.Read(ctx, s, "q", p.Name); return optional(err) },
		"Walk":       func() error { _, err := driver.Walk(ctx, s, ""); return optional(err) },
	}
}

// checkEnded calls everything in a session that has ended.
func checkEnded(c *check, s driver.Session, p driver.Place) {
	for name, call := range calls(c.ctx, s, p) {
		c.wantEnded(name, call())
	}
	for range 3 {
		c.wantEnded("Err", s.Err())
	}
	if !closed(s.Done()) {
		c.errorf("Done is open after Err returned %v, expected it to be closed", s.Err())
	}
}

func endExpired(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.expire(a)
	c.ends(a, "the store ended the session")
	checkEnded(c, a, p)
	vanish(c, b, "q", "a session that expired")
}

func endExpiredAlone(c *check) {
	a, b := c.twoSessions()
	c.create(a, "q", writer)
	p := c.create(b, "q", writer)
	c.expire(a)
	c.ends(a, "the store ended the session")
	vanish(c, b, "q", "a session that expired", p.Node)
	c.wantAlive(b, "another session expired")
	again := c.session()
	c.create(again, "q", reader)
	c.wantAlive(again, "another session expired")
}

// endBeforePass looks at the holder at the moment when a contender sees its node
// gone. Err judges by the clocks, so it always has to know. Done needs a timer,
// which a slow machine may run late: once in three times is enough.
func endBeforePass(c *check) {
	for range 3 {
		holder, next := c.twoSessions()
		p := c.create(holder, "q", writer)
		c.cutOff(holder)
		endedAt := make(chan time.Time, 1)
		go func() {
			select {
			case <-holder.Done():
				endedAt <- time.Now()
			case <-c.ctx.Done():
			}
		}()
		waitGone(c, next, "q", p.Node)
		passed := time.Now()
		inTime := closed(holder.Done())
		if err := holder.Err(); err == nil {
			c.fatalf("the node of a session that was cut off is gone, and the session's Err returns nil: expected it to have ended before")
		}
		if inTime {
			c.logf("Done closed %v before another session saw the node gone", passed.Sub(<-endedAt).Round(time.Millisecond))
			return
		}
	}
	c.fatalf("Done of a session that was cut off was open when another session saw its node gone, three times: expected it to close before")
}

// endWithMargin asks a session that is cut off again and again whether it lives.
// The last time at which it said so counts: a question that a slow machine asks
// late is then no fault of the driver.
func endWithMargin(c *check) {
	least := c.config.sessionTimeout() / 20
	holder, next := c.twoSessions()
	p := c.create(holder, "q", writer)
	c.cutOff(holder)
	over, lived := make(chan struct{}), make(chan time.Time, 1)
	stop := sync.OnceFunc(func() { close(over) })
	defer stop()
	go func() {
		var last time.Time
		for !closed(over) {
			now := time.Now()
			if holder.Err() != nil {
				break
			}
			last = now
			time.Sleep(c.config.sessionTimeout() / 500)
		}
		lived <- last
	}()
	waitGone(c, next, "q", p.Node)
	gone := time.Now()
	stop()
	spare := gone.Sub(<-lived).Round(time.Millisecond)
	c.logf("the session lived until %v before its node went", spare)
	if spare < least {
		c.errorf("a session that was cut off lived until %v before its node went, expected it to end at least %v before, "+
			"a twentieth of the session timeout, for the drift of two clocks", spare, least)
	}
}

// endAfterSlowReplies cuts a session off while replies to its requests are on
// their way. They arrive, and must not prolong the lease by the time that they
// took. A driver may also lose its session to replies that slow.
func endAfterSlowReplies(c *check) {
	timeout := c.config.sessionTimeout()
	for i := range 4 {
		holder, next := c.twoSessions()
		p := c.create(holder, "q", writer)
		c.delayReplies(holder, timeout/2)
		var wg sync.WaitGroup
		for range 3 { // requests that the store counts
			wg.Go(func() { _, _ = holder.List(c.ctx, "q") })
		}
		// The requests arrive. The later ones find heartbeats on their way, too.
		time.Sleep(timeout/20 + time.Duration(i)*timeout/16)
		c.cutOff(holder)
		waitGone(c, next, "q", p.Node)
		if holder.Err() == nil {
			c.errorf("the node of a session that was cut off is gone, and the session's Err returns nil: " +
				"replies that took half of the session timeout have prolonged the session")
		}
		wg.Wait()
		if c.failed() {
			return
		}
	}
}

func endUnasked(c *check) {
	s := c.session()
	c.create(s, "q", writer)
	c.cutOff(s)
	c.ends(s, "the session was cut off (and nothing called)")
}

func endForEver(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	heal := c.cutOff(a)
	c.ends(a, "the session was cut off")
	checkEnded(c, a, p)
	heal()
	for range 20 { // while late replies arrive
		checkEnded(c, a, p)
		time.Sleep(c.config.sessionTimeout() / 40)
	}
	vanish(c, b, "q", "a session that ended while it was cut off")
	checkEnded(c, a, p)
}

func endPaused(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	c.wantAlive(a, "Create")
	c.pause(a, 2*c.config.sessionTimeout())
	if err := a.Err(); err == nil {
		c.fatalf("Err returned nil after a pause of twice the session timeout, expected the session to have ended")
	}
	c.ends(a, "a pause of twice the session timeout")
	checkEnded(c, a, p)
	_ = a.Close()
	vanish(c, b, "q", "a session that ended in a pause")
	c.wantAlive(b, "another session's process was paused")
}
