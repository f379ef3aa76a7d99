package dlocktest

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var endCases = []testCase{
	{name: "an-idle-session-lives-on", why: "every lock that is held for longer than a session timeout would be lost", idle: true,
		run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			if !outlives(a, 2*c.config.sessionTimeout()) {
				c.fatalf("an idle session ended while the store could be reached: %v", a.Err())
			}
			c.wantNodes("after two session timeouts without a call", c.listAfterWrite(b, "q"), p.Node)
		})},
	{name: "an-expired-session-ends-and-no-other-does", why: whyEnd + "; and the end of one client must not be the end of all",
		needs: needDrop, run: pair(func(c *check, a, b session) {
			gone, p := c.create(a, "q", writer), c.create(b, "q", writer)
			c.expire(a)
			c.awaitSessionEnd(a, "the store ended the session")
			checkEnded(c, a, gone)
			eventuallyHolds(c, b, "q", "a session that expired", p.Node)
			c.wantAlive(b, "another session expired")
			again := c.session()
			c.create(again, "q", reader)
			c.wantAlive(again, "another session expired")
		})},
	{name: "a-session-dropped-ends-with-the-next-answer", why: whyEnd, needs: needDrop, run: func(c *check) {
		// The session must end before its lease would run out. The driver may
		// have to connect again to get the answer.
		wait := c.config.sessionTimeout() / 4
		for name := range inEveryTry(func() map[string]bool {
			late := make(map[string]bool)
			for _, name := range []string{"Create", "List", "Watch", "WatchQueue", "Delete", "Replace"} {
				s := c.session()
				call := c.calls(c.ctx, s, "q", c.create(s, "q", writer))[name]
				c.expire(s)
				over := time.Now().Add(wait)
				for ; s.Err() == nil && time.Now().Before(over); pauseBriefly() {
					c.wantGivenUp(name+" in a session that the store has dropped", s, c.ctx, call())
				}
				if s.Err() == nil {
					late[name] = true
				}
			}
			return late
		}) {
			c.errorf("a session that the store had dropped lived on for more than %v of calls of %s, in every try: expected it to end with the store's next answer", wait, name)
		}
	}},
	{name: "a-session-heard-from-late-keeps-its-nodes", why: whyEnd, needs: needCutOff, run: func(c *check) {
		timeout := c.config.sessionTimeout()
		var lived atomic.Bool
		c.together(4, func(i int) {
			holder, next := c.session(), c.session()
			queue := fmt.Sprintf("q%d", i)
			p := c.create(holder, queue, writer)
			c.waitFor(next, queue, p.Node)
			heal := c.cutOff(holder)
			cut := timeout * time.Duration(35+10*i) / 100
			time.Sleep(cut)
			heal()
			for over := time.Now().Add(timeout); time.Now().Before(over); time.Sleep(timeout / 100) {
				listed := has(c.list(next, queue), p.Node)
				if holder.Err() != nil {
					return
				}
				if !listed {
					c.fatalf("the node of a session that was cut off for %v is gone, and Err of the session returns nil: expected the session to live on, or to end before", cut)
				}
			}
			lived.Store(true)
		})
		if !lived.Load() {
			c.notChecked("no session outlived a cut of its connection")
		}
	}},
	{name: "sessions-that-end-while-nobody-looks-leave-nothing", why: whyOrphan, needs: needCutOff, run: func(c *check) {
		// In a store without a clock, a session that begins later may need a
		// session timeout to find out that the others have expired.
		timeout := c.config.sessionTimeout()
		var took time.Duration
		for range 3 {
			for range 3 {
				s := c.session()
				c.create(s, "q", writer)
				c.cutOff(s)
			}
			time.Sleep(2 * timeout)
			next := c.session()
			begin := time.Now()
			eventuallyHolds(c, next, "q", "sessions that had expired before this one began")
			if took = time.Since(begin); took < 2*timeout {
				return
			}
			c.close(next)
		}
		c.errorf("nodes of sessions that had expired before stood in the queue for %v after another session began, in three tries: expected less than two session timeouts", took)
	}},
	{name: "a-session-cut-off-ends-before-its-nodes-go", why: whyEnd, needs: needCutOff, run: func(c *check) {
		// Err must always be right, because it reads the clocks. Done needs a
		// timer and may be late in two of three tries.
		for range 3 {
			holder, next := c.session(), c.session()
			p := c.create(holder, "q", writer)
			c.cutOff(holder)
			waitGone(c, next, "q", p.Node)
			inTime := closed(holder.Done())
			if holder.Err() == nil {
				c.fatalf("the node of a session that was cut off is gone, and Err of the session returns nil: expected the session to have ended before")
			}
			if inTime {
				return
			}
		}
		c.fatalf("Done of a session that was cut off was open when another session saw its node gone, in three tries: expected it to close before")
	}},
	{name: "a-session-cut-off-ends-with-a-margin",
		why:   "clocks of two machines drift: a lease as long as the timeout of the store may end after that timeout",
		needs: needCutOff, run: pair(func(c *check, holder, next session) {
			wantMargin(c, holder, next, c.create(holder, "q", writer))
		})},
	{name: "slow-replies-do-not-prolong-a-session",
		why:   "the store counts from the arrival of a request: a lease that counts from the reply ends after the timeout of the store",
		needs: needCutOff | needDelayReplies, run: func(c *check) {
			// [driver.Lease.Run] waits a quarter of the timeout at most, so
			// slowBeats delays less. If no session outlives its timeout, the
			// case tries a shorter delay.
			timeout := c.config.sessionTimeout()
			var renewed atomic.Bool
			slowBeats := func(percent int) {
				if endAfterSlowBeats(c, percent) {
					renewed.Store(true)
				}
			}
			lives := false // whether a session survives without replies
			c.atOnce(
				func() { endAfterSlowLists(c, timeout/20) },
				func() { endAfterSlowLists(c, timeout/4) },
				func() { slowBeats(22) },
				func() { slowBeats(20) },
				func() {
					s := c.session()
					c.delayReplies(s, 2*timeout)
					lives = outlives(s, timeout+timeout*3/4)
				})
			if lives {
				c.hookHadNoEffect("DelayReplies", "a session outlived its timeout although each reply took twice the timeout, "+
					"or the sessions of Config.New have a longer timeout than Config.SessionTimeout")
				return
			}
			for n := 0; n < 2 && !renewed.Load(); n++ {
				slowBeats(10)
			}
			if !renewed.Load() {
				c.notChecked("no session outlived its timeout with slow replies to its heartbeats, not even if they took a tenth of the timeout")
			}
		}},
	{name: "a-session-that-ended-never-lives-again", why: "a holder that has learned of its loss would be told that it holds the lock, although its node is gone",
		needs: needCutOff, run: pair(func(c *check, a, b session) {
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
		})},
	{name: "after-a-pause-err-returns-the-end-at-once", why: "a process that was paused for longer than its session lives would go on writing until its timers have run",
		needs: needPause, run: pair(func(c *check, a, b session) {
			p := c.create(a, "q", writer)
			c.wantAlive(a, "Create")
			c.pause(a, 2*c.config.sessionTimeout())
			if a.Err() == nil {
				c.fatalf("Err returned nil after a pause of twice the session timeout, expected the session to have ended")
			}
			c.awaitSessionEnd(a, "a pause of twice the session timeout")
			checkEnded(c, a, p)
			_ = a.Close()
			eventuallyHolds(c, b, "q", "a session that ended in a pause")
			c.wantAlive(b, "another session's process was paused")
		})},
}

func (c *check) timeoutOf(s session) time.Duration {
	return cmp.Or(driver.Inspect(s).Describe().Timeout, c.config.sessionTimeout())
}

// wantMargin checks that a session ends at least a twentieth of its timeout
// before its node goes. Measuring from the last nil Err tolerates stalls.
func wantMargin(c *check, holder, next session, p driver.Place) {
	least := c.config.sessionTimeout() / 20
	c.cutOff(holder)
	cut := time.Now()
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
	for before, at := range map[string]time.Time{"its node went": gone, "the store's timeout was over": cut.Add(c.timeoutOf(holder))} {
		spare := at.Sub(last).Round(time.Millisecond)
		c.logf("the session lived until %v before %s", spare, before)
		if spare < least {
			c.errorf("a session that was cut off lived until %v before %s, expected it to end at least %v before, "+
				"a twentieth of the session timeout, for the drift of two clocks", spare, before, least)
		}
	}
}

// endAfterSlowLists cuts a session off while replies to List are in flight. If
// the pause is long, replies to heartbeats are in flight as well.
func endAfterSlowLists(c *check, pause time.Duration) {
	timeout := c.config.sessionTimeout()
	holder, next := c.session(), c.session()
	p := c.create(holder, "q", writer)
	c.delayReplies(holder, timeout/2)
	var wg sync.WaitGroup
	for range 3 { // each List restarts the store's session timeout
		wg.Go(func() { _, _ = holder.List(c.ctx, "q") })
	}
	time.Sleep(pause)
	wantMargin(c, holder, next, p)
	wg.Wait()
}

// endAfterSlowBeats cuts a session off after slow replies have renewed its
// lease. It returns false if none has.
func endAfterSlowBeats(c *check, percent int) (counted bool) {
	holder, next := c.session(), c.session()
	timeout := c.timeoutOf(holder)
	delay := timeout * time.Duration(percent) / 100
	p := c.create(holder, "q", writer)
	c.delayReplies(holder, delay)
	if !outlives(holder, timeout+timeout/16) {
		c.logf("the session did not survive replies that took %v", delay)
		return false
	}
	wantMargin(c, holder, next, p)
	return true
}

func outlives(s session, d time.Duration) bool {
	select {
	case <-s.Done():
	case <-time.After(d):
	}
	return s.Err() == nil
}
