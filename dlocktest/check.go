package dlocktest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// closeGrace is how long Close may take if it cannot reach the store. Rule 9 of
// package driver says a few seconds. The bound is much longer, because machines
// may be slow.
var closeGrace = 20 * time.Second

// attempts is the maximum number of attempts at a case. A case is repeated if
// it has failed and has lost a session that it did not end itself. If the
// process was stopped for long during the latest attempt, as on a very busy
// machine, the maximum is stalledAttempts, because that is no fault of the
// driver. A driver that loses its sessions by a mistake loses one in every
// attempt, so it fails.
const (
	attempts        = 5
	stalledAttempts = 12
)

// runCase runs one case. It repeats an attempt that failed and lost a session.
func runCase(t *testing.T, config Config, can need, r rule, k testCase) verdict {
	t.Helper()
	for n := 1; ; n++ {
		c := &check{t: t, config: config, can: can, rule: r, testCase: k}
		c.attempt()
		switch {
		case c.hook != "":
			t.Errorf("dlocktest: Config.%s failed: this says nothing of the driver, and %s was not checked by this case", c.hook, r.label())
			return hookFailed
		case len(c.failures) == 0 && c.unproven != "":
			t.Logf("%s not checked: %s", r.label(), c.unproven)
			return unproven
		case len(c.failures) == 0:
			return passed
		case c.lost == nil, n >= attempts && !c.stalled(), n == stalledAttempts:
			c.report()
			return broken
		}
		t.Logf("attempt %d failed after a session had ended by itself (%v), in a process that did not run for up to %v; trying again",
			n, c.lost, c.stall.Round(time.Millisecond))
		if n > 1 {
			time.Sleep(config.sessionTimeout()) // gives the machine, or the store, time to recover
		}
	}
}

// check is one attempt at a case. It makes sessions, closes them at the end,
// and keeps the failures, which count only if the attempt is the last one.
//
// The case runs on a goroutine of its own, so that a driver that hangs fails
// its case and not the whole test. An attempt that takes too long is abandoned:
// it does not use t any more, and its goroutines end at their next step.
type check struct {
	t        *testing.T
	config   Config
	can      need // the hooks that Config has, and the abilities that sessions have
	rule     rule
	testCase testCase
	ctx      context.Context // the context of calls of the driver; ends when the attempt is abandoned

	mu        sync.Mutex
	abandoned bool
	failures  []string
	hook      string        // the first hook of Config that failed; empty if none has
	unproven  string        // why the attempt proves nothing; empty if it proves something
	lost      error         // the error of a session that ended although the case did not end it
	stall     time.Duration // the longest time for which the process did not run
	sessions  []driver.Session
	mayEnd    map[driver.Session]bool // the sessions that the case ends, or that may end because of it
	heals     []func()
	cuts      map[driver.Session]bool        // the sessions that are cut off
	drops     map[driver.Session]driver.Node // the sessions that Drop has ended, with a node of each
	suspect   string                         // a hook that had no effect in an attempt that failed
	clients   []*client

	making sync.Mutex
	store  driver.Connector

	hooks sync.Mutex // held while a hook runs
}

func (c *check) attempt() {
	most := 2*c.config.bound() + closeGrace
	ctx, cancel := context.WithTimeout(context.Background(), most-closeGrace/2)
	defer cancel()
	c.ctx = ctx
	c.mayEnd = make(map[driver.Session]bool)
	c.cuts = make(map[driver.Session]bool)
	c.drops = make(map[driver.Session]driver.Node)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer c.cleanUp()
		defer c.suspectHooks()
		c.testCase.run(c)
	}()
	defer c.abandon()
	defer c.measureStalls()()
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-finished:
	case <-limit.C:
		c.errorf("the driver hung: the case and the Close of its sessions took longer than %v\ngoroutines:\n%s", most, stacks())
	}
}

// waitTimer is the time limit of one wait.
type waitTimer struct {
	began time.Time
	over  <-chan time.Time
}

// startWait starts the timer of a wait.
func (c *check) startWait() waitTimer {
	return waitTimer{time.Now(), time.After(c.config.bound())}
}

// elapsed returns how long the wait has taken so far.
func (t waitTimer) elapsed() time.Duration { return time.Since(t.began).Round(time.Millisecond) }

// rounds calls f up to n times, with the number of the round. On a slow store
// there are fewer rounds, because the cases do not check how fast a store is.
func (c *check) rounds(n int, f func(i int)) {
	const least = 3
	enough := time.Now().Add(c.config.bound() / 2)
	for i := range n {
		if i >= least && time.Now().After(enough) {
			c.logf("%d rounds instead of %d, because the store is slow", i, n)
			return
		}
		c.exitIfAbandoned()
		f(i)
	}
}

// measureStalls runs a goroutine that wakes every few milliseconds, and records
// the longest time by which it was late. The function stop ends the goroutine.
func (c *check) measureStalls() (stop func()) {
	const pause = 5 * time.Millisecond
	quit, finished := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(finished)
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-quit:
				return
			case <-time.After(pause):
			}
			c.stall = max(c.stall, time.Since(last)-pause)
		}
	}()
	return func() {
		close(quit)
		<-finished
	}
}

// stalled reports whether the process was stopped for so long that a session
// may have been lost for this reason.
func (c *check) stalled() bool { return c.stall > c.config.sessionTimeout()/10 }

// report reports the failures to t, the first ten at most.
func (c *check) report() {
	c.t.Helper()
	const most = 10
	for i, f := range c.failures {
		if i == most {
			c.t.Errorf("and %d more", len(c.failures)-i)
			break
		}
		c.t.Errorf("%s broken: %s", c.rule, f)
	}
	c.t.Errorf("why it matters: %s", c.testCase.why)
	if c.suspect != "" {
		c.t.Errorf("dlocktest: %s: look at this hook before the driver", c.suspect)
	}
}

func (c *check) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abandoned = true
}

// cleanUp records which sessions were lost, heals all cuts, and closes clients
// and sessions, so that the store can be taken down.
func (c *check) cleanUp() {
	c.mu.Lock()
	sessions, heals, clients := c.sessions, c.heals, c.clients
	c.mu.Unlock()
	for _, s := range sessions {
		c.noteIfLost(s)
	}
	var wg sync.WaitGroup
	for _, heal := range heals {
		// Each heal runs on a goroutine of its own. If the hook calls t.Fatal,
		// only that goroutine ends.
		wg.Go(heal)
	}
	wg.Wait()
	for _, cl := range clients {
		wg.Go(func() { _ = cl.Close() })
	}
	wg.Wait()
	for _, s := range sessions {
		wg.Go(func() { _ = s.Close() })
	}
	wg.Wait()
}

// hookFailed records that a hook failed. Only the first hook that fails is
// recorded.
func (c *check) hookFailed(hook string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hook == "" && !c.abandoned {
		c.hook = hook
	}
}

// hookHadNoEffect records that a hook has not played its fault, and what was seen.
func (c *check) hookHadNoEffect(hook, format string, args ...any) {
	c.mu.Lock()
	if !c.abandoned && c.hook == "" {
		c.t.Errorf("dlocktest: Config.%s had no effect: %s", hook, fmt.Sprintf(format, args...))
	}
	c.mu.Unlock()
	c.hookFailed(hook)
}

// notChecked records why the attempt proves nothing.
func (c *check) notChecked(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.abandoned {
		c.unproven = why
	}
}

// noteIfLost records the error of a session that has ended although the case has done
// nothing that may end it.
func (c *check) noteIfLost(s driver.Session) {
	err := s.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !c.mayEnd[s] && !c.abandoned {
		c.lost = err
	}
}

// exitIfAbandoned ends the calling goroutine if the attempt has been abandoned.
func (c *check) exitIfAbandoned() {
	c.mu.Lock()
	gone := c.abandoned
	c.mu.Unlock()
	if gone {
		runtime.Goexit()
	}
}

// errorf records a failure: what the driver did, and what was expected.
func (c *check) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.abandoned {
		c.failures = append(c.failures, fmt.Sprintf(format, args...))
	}
}

// fatalf records a failure and ends the calling goroutine.
func (c *check) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	runtime.Goexit()
}

func (c *check) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failures) > 0 || c.hook != ""
}

func (c *check) logf(format string, args ...any) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.abandoned {
		c.t.Logf(format, args...)
	}
}

// connector returns the connector of this attempt. The first call makes it.
func (c *check) connector() driver.Connector {
	c.exitIfAbandoned()
	c.making.Lock()
	defer c.making.Unlock()
	if c.store == nil {
		c.runHook("New", func() { c.store = c.config.New(c.t) })
	}
	if c.store == nil {
		c.fatalf("Config.New returned nil")
	}
	return c.store
}

// session begins a session, which is closed when the attempt ends.
func (c *check) session() driver.Session { return c.sessionOf(c.connector()) }

func (c *check) sessionOf(store driver.Connector) driver.Session {
	c.exitIfAbandoned()
	var s driver.Session
	c.retry("Connect", func() (err error) {
		s, err = store.Connect(c.ctx)
		return err
	})
	if s == nil {
		c.fatalf("Connect returned neither a session nor an error")
	}
	c.closeLater(s)
	return s
}

// closeLater registers the session, so that it is closed when the attempt ends.
func (c *check) closeLater(s driver.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = append(c.sessions, s)
}

func (c *check) twoSessions() (a, b driver.Session) { return c.session(), c.session() }

// expectEnd records that the case ends the session, or does something that may
// end it. A session that has ended before was lost.
func (c *check) expectEnd(s driver.Session) {
	c.noteIfLost(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayEnd[s] = true
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	buf := make([]byte, 1<<18)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return string(buf[:n])
		}
		buf = make([]byte, 2*len(buf))
	}
}
