package dlocktest

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var endCases = []testCase{
	{name: "a-session-lives-after-connect", why: "every lock would be lost as soon as it is granted", run: endNotYet},
	{name: "an-idle-session-lives-on", why: "every lock that is held for longer than a session timeout would be lost", idle: true, run: endIdle},
	{name: "an-expired-session-ends-and-no-other-does", why: whyEnd + "; and the end of one client must not be the end of all",
		needs: needDrop, run: endExpired},
	{name: "a-session-cut-off-ends-before-its-nodes-go", why: whyEnd, needs: needCutOff, run: endBeforeNodesGo},
	{name: "a-session-cut-off-ends-with-a-margin",
		why:   "clocks of two machines drift: a lease as long as the timeout of the store may end after that timeout",
		needs: needCutOff, run: endWithMargin},
	{name: "slow-replies-do-not-prolong-a-session",
		why:   "the store counts from the arrival of a request: a lease that counts from the reply ends after the timeout of the store",
		needs: needCutOff | needDelayReplies, run: endAfterSlowReplies},
	{name: "a-session-that-ended-never-lives-again", why: "a holder that has learned of its loss would be told that it holds the lock, although its node is gone",
		needs: needCutOff, run: endForEver},
	{name: "after-a-pause-err-returns-the-end-at-once", why: "a process that was paused for longer than its session lives would go on writing until its timers have run",
		needs: needPause, run: endPaused},
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

// endIdle checks that an idle session lives on. It may fail with a correct
// driver on a slow machine; runCase then retries it.
func endIdle(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	select {
	case <-a.Done():
		c.fatalf("an idle session ended while the store could be reached: %v", a.Err())
	case <-time.After(2 * c.config.sessionTimeout()):
	}
	c.wantAlive(a, "two session timeouts without a call")
	c.wantNodes("after two session timeouts without a call", c.listAfterWrite(b, "q"), p.Node)
}

func endExpired(c *check) {
	a, b := c.twoSessions()
	gone, p := c.create(a, "q", writer), c.create(b, "q", writer)
	c.expire(a)
	c.awaitSessionEnd(a, "the store ended the session")
	checkEnded(c, a, gone)
	eventuallyHolds(c, b, "q", "a session that expired", p.Node)
	c.wantAlive(b, "another session expired")
	again := c.session()
	c.create(again, "q", reader)
	c.wantAlive(again, "another session expired")
}

// endBeforeNodesGo checks that a session knows of its end before others see its
// nodes disappear. Err reads the clocks and must always be right. Done needs a
// timer, which may be late on a slow machine, so one success in three tries is
// enough.
func endBeforeNodesGo(c *check) {
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
			c.fatalf("the node of a session that was cut off is gone, and Err of the session returns nil: expected the session to have ended before")
		}
		if inTime {
			c.logf("Done closed %v before another session saw the node gone", passed.Sub(<-endedAt).Round(time.Millisecond))
			return
		}
	}
	c.fatalf("Done of a session that was cut off was open when another session saw its node gone, in three tries: expected it to close before")
}

func endWithMargin(c *check) {
	holder, next := c.twoSessions()
	wantMargin(c, holder, next, c.create(holder, "q", writer))
}

// wantMargin checks that a session that is cut off ends at least a twentieth of
// the session timeout before its node disappears.
//
// It measures from the last time that Err returned nil, so a test process that
// gets no CPU time fails no driver.
func wantMargin(c *check, holder, next driver.Session, p driver.Place) {
	least := c.config.sessionTimeout() / 20
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
	last := <-lived
	if last.IsZero() {
		c.logf("the session had ended before Err was called first")
		return
	}
	spare := gone.Sub(last).Round(time.Millisecond)
	c.logf("the session lived until %v before its node went", spare)
	if spare < least {
		c.errorf("a session that was cut off lived until %v before its node went, expected it to end at least %v before, "+
			"a twentieth of the session timeout, for the drift of two clocks", spare, least)
	}
}

// endAfterSlowReplies cuts a session off while replies are in flight. Late
// replies must not prolong the lease by their delay. Slow replies may end a
// session, which is no failure.
//
// Replies to heartbeats are delayed by less than a quarter of the timeout,
// after which [driver.Lease.Run] gives up. The result is conclusive only if a
// slow reply has renewed the lease, which is certain once the session has
// outlived its timeout. If no session did, a shorter delay is tried, which more
// drivers survive.
func endAfterSlowReplies(c *check) {
	timeout := c.config.sessionTimeout()
	var renewed atomic.Bool
	slowBeats := func(delay time.Duration) {
		if endAfterSlowBeats(c, delay) {
			renewed.Store(true)
		}
	}
	lives := false // whether a session survives without replies
	// These functions mostly wait, so they run concurrently.
	waits := []func(){
		func() { endAfterSlowLists(c, timeout/20) },
		func() { endAfterSlowLists(c, timeout/4) },
		func() { slowBeats(timeout * 22 / 100) },
		func() { slowBeats(timeout * 20 / 100) },
		func() { lives = c.livesWithoutReplies(c.session()) },
	}
	c.together(len(waits), func(i int) { waits[i]() })
	if lives {
		c.hookHadNoEffect("DelayReplies", "a session outlived its timeout although each reply took twice the timeout, "+
			"or the sessions of Config.New have a longer timeout than Config.SessionTimeout")
		return
	}
	for n := 0; n < 2 && !renewed.Load(); n++ {
		slowBeats(timeout / 10)
	}
	if !renewed.Load() {
		c.notChecked("no session outlived its timeout with slow replies to its heartbeats, not even if they took a tenth of the timeout")
	}
}

// endAfterSlowLists cuts a session off while replies to List are in flight. The
// pause before that lets the requests reach the store; a long pause also leaves
// replies to heartbeats in flight.
func endAfterSlowLists(c *check, pause time.Duration) {
	timeout := c.config.sessionTimeout()
	holder, next := c.twoSessions()
	p := c.create(holder, "q", writer)
	c.delayReplies(holder, timeout/2)
	var wg sync.WaitGroup
	for range 3 { // each List restarts the session timeout in the store
		wg.Go(func() { _, _ = holder.List(c.ctx, "q") })
	}
	time.Sleep(pause)
	wantMargin(c, holder, next, p)
	wg.Wait()
}

// endAfterSlowBeats delays the replies to an idle session and then cuts it off.
// It reports whether the session outlived its timeout, which proves that a slow
// reply renewed the lease.
func endAfterSlowBeats(c *check, delay time.Duration) (counted bool) {
	timeout := c.config.sessionTimeout()
	holder, next := c.twoSessions()
	p := c.create(holder, "q", writer)
	c.delayReplies(holder, delay)
	select {
	case <-holder.Done():
	case <-time.After(timeout + timeout/16):
	}
	if holder.Err() != nil {
		c.logf("the session did not survive replies that took %v", delay)
		return false
	}
	wantMargin(c, holder, next, p)
	return true
}

func endForEver(c *check) {
	a, b := c.twoSessions()
	p := c.create(a, "q", writer)
	heal := c.cutOff(a)
	c.awaitSessionEnd(a, "the session was cut off (and no method called)")
	checkEnded(c, a, p)
	heal()
	for range 20 { // late replies must not revive the session
		checkEnded(c, a, p)
		time.Sleep(c.config.sessionTimeout() / 40)
	}
	eventuallyHolds(c, b, "q", "a session that ended while it was cut off")
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
	c.awaitSessionEnd(a, "a pause of twice the session timeout")
	checkEnded(c, a, p)
	_ = a.Close()
	eventuallyHolds(c, b, "q", "a session that ended in a pause")
	c.wantAlive(b, "another session's process was paused")
}

// livesWithoutReplies delays replies by twice the session timeout and reports
// whether the session survives, in which case Config.DelayReplies has no
// effect.
func (c *check) livesWithoutReplies(s driver.Session) bool {
	timeout := c.config.sessionTimeout()
	c.delayReplies(s, 2*timeout)
	select {
	case <-s.Done():
	case <-time.After(timeout + timeout*3/4):
	}
	return s.Err() == nil
}
