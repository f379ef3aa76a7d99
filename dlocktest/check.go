package dlocktest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// verdict is the outcome of a case.
type verdict int

const (
	passed     verdict = iota
	broken             // the driver breaks the rule
	hookFailed         // a hook of Config failed, so the case proves nothing about the driver
	unproven           // the fault had no effect, so the case proves nothing
)

// A testCase checks one sentence of a rule.
type testCase struct {
	name  string
	why   string // how a driver that fails the case harms a lock
	needs need
	run   func(c *check)
}

// A rule is a rule of package driver, with the cases that check it.
type rule struct {
	number int // zero for the groups read, walk, describe and locks
	name   string
	cases  []testCase
}

// id is the name of the rule's subtest, such as "rule07".
func (r rule) id() string {
	if r.number == 0 {
		return r.name
	}
	return fmt.Sprintf("rule%02d", r.number)
}

// label names the rule in a sentence, for example "rule 7".
func (r rule) label() string {
	if r.number == 0 {
		return r.name
	}
	return fmt.Sprintf("rule %d", r.number)
}

func (r rule) String() string {
	if r.number == 0 {
		return r.name
	}
	return fmt.Sprintf("rule %d (%s)", r.number, r.name)
}

// check is one attempt at a case. It makes sessions, closes them at the end,
// and collects the failures, which count only if the attempt is the last one.
//
// The case runs on a goroutine of its own, so that a driver that hangs fails
// only this case. An attempt that takes too long is abandoned: it no longer
// uses t, and its goroutines exit at their next step.
type check struct {
	t        *testing.T
	config   Config
	can      need // hooks of Config and abilities of sessions
	rule     rule
	testCase testCase
	ctx      context.Context // for calls of the driver; done when the attempt is abandoned

	mu        sync.Mutex
	abandoned bool
	failures  []string
	hook      string        // the first hook of Config that failed
	unproven  string        // why the attempt proves nothing; empty if it proves something
	lost      error         // the error of a session that ended although the case did not end it
	stall     time.Duration // the longest time for which the process did not run
	sessions  []driver.Session
	mayEnd    map[driver.Session]bool // sessions that the case ends, or that may end because of it
	heals     []func()
	cuts      map[driver.Session]bool        // sessions that are cut off
	drops     map[driver.Session]driver.Node // sessions ended by Drop, with a node of each
	suspect   string                         // why a hook seems to have had no effect; empty if none does
	clients   []*dlock.Client

	making sync.Mutex
	store  driver.Connector

	hooks sync.Mutex // held while a hook runs
}

// errorf records a failure: what the driver did, and what was expected.
func (c *check) errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.abandoned {
		c.failures = append(c.failures, fmt.Sprintf(format, args...))
	}
}

// fatalf records a failure and exits the calling goroutine.
func (c *check) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	runtime.Goexit()
}

func (c *check) logf(format string, args ...any) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.abandoned {
		c.t.Logf(format, args...)
	}
}

func (c *check) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.failures) > 0 || c.hook != ""
}

func (c *check) exitIfAbandoned() {
	c.mu.Lock()
	gone := c.abandoned
	c.mu.Unlock()
	if gone {
		runtime.Goexit()
	}
}

// hookFailed records that a hook failed, unless another one failed before.
func (c *check) hookFailed(hook string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hook == "" && !c.abandoned {
		c.hook = hook
	}
}

// hookHadNoEffect records that a hook has injected no fault, and what was seen.
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

// closeLater has the session closed at the end of the attempt.
func (c *check) closeLater(s driver.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = append(c.sessions, s)
}

// expectEnd records that the case ends the session, or may end it. If the
// session has ended already, it was lost.
func (c *check) expectEnd(s driver.Session) {
	c.noteIfLost(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayEnd[s] = true
}

// noteIfLost records the session's error if it ended although the case did
// nothing that may end it.
func (c *check) noteIfLost(s driver.Session) {
	err := s.Err()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && !c.mayEnd[s] && !c.abandoned {
		c.lost = err
	}
}

// closeGrace is how long Close may take if it cannot reach the store. Rule 9
// allows a few seconds. This is much longer, because machines may be slow.
var closeGrace = 20 * time.Second

// waitTimer is the time limit of one wait.
type waitTimer struct {
	began time.Time
	over  <-chan time.Time
}

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

func stacks() string {
	buf := make([]byte, 1<<18)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return string(buf[:n])
		}
		buf = make([]byte, 2*len(buf))
	}
}
