package dlocktest

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

type verdict int

const (
	passed     verdict = iota
	broken             // the driver breaks the rule
	hookFailed         // a Config hook failed; proves nothing
	unproven           // the injected fault had no effect; proves nothing
)

// A testCase checks one requirement of a rule.
type testCase struct {
	name  string
	why   string // how users suffer if the driver fails
	needs need
	idle  bool // mostly waits; not set if needs implies that
	run   func(c *check)
}

type session = driver.Session

func solo(run func(c *check, s session)) func(*check) {
	return func(c *check) { run(c, c.session()) }
}

func pair(run func(c *check, a, b session)) func(*check) {
	return func(c *check) { run(c, c.session(), c.session()) }
}

// waiters is like pair, but both sessions have waited before, because some
// drivers listen for releases only after a first wait.
func waiters(run func(c *check, a, b session)) func(*check) {
	return pair(func(c *check, a, b session) {
		c.waitOnce(a, b, "q")
		c.waitOnce(b, a, "q")
		run(c, a, b)
	})
}

// waits reports whether the case spends its time waiting for session timeouts,
// as cases that end sessions do. Other cases send many requests.
func (k testCase) waits() bool {
	return k.idle || k.needs&(needDrop|needCutOff|needDelayReplies|needPause) != 0
}

type rule struct {
	number int // zero for cases outside the numbered rules
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

// label returns the rule's name for use in a sentence, such as "rule 7".
func (r rule) label() string {
	label, _, _ := strings.Cut(r.String(), " (")
	return label
}

// alone reports whether the rule's cases must not run in parallel with others,
// because they count the goroutines and connections of the process.
func (r rule) alone() bool { return r.number == 11 }

func (r rule) String() string {
	if r.number == 0 {
		return r.name
	}
	return fmt.Sprintf("rule %d (%s)", r.number, r.name)
}

// check is one attempt to run a case, in a goroutine of its own so that a
// hanging driver fails only this case.
type check struct {
	t        *testing.T
	config   Config
	can      need
	rule     rule
	testCase testCase
	ctx      context.Context // for driver calls; ends on abandonment

	mu        sync.Mutex
	abandoned bool // t must no longer be used
	failures  []string
	hook      string        // the first Config hook that failed
	unproven  string        // why the attempt proves nothing; usually empty
	lost      error         // error of a session that ended unexpectedly
	stall     time.Duration // the longest pause of the process
	opened    []session
	mayEnd    map[session]bool // sessions that the case may have ended
	heals     []func()
	cuts      map[session]bool
	drops     map[session]driver.Node // a node of each session that Drop ended
	suspect   string                  // a hook that apparently did nothing; usually empty
	clients   []*dlock.Client

	making sync.Mutex
	store  driver.Connector

	hooks sync.Mutex // serializes hooks
}

func (c *check) errorf(format string, args ...any) {
	c.note(func() { c.failures = append(c.failures, fmt.Sprintf(format, args...)) })
}

// note calls f with c.mu held, unless the attempt is abandoned.
func (c *check) note(f func()) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.abandoned {
		f()
	}
}

func (c *check) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	runtime.Goexit()
}

func (c *check) logf(format string, args ...any) { c.note(func() { c.t.Logf(format, args...) }) }

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

func (c *check) hookFailed(hook string) {
	c.note(func() { c.hook = cmp.Or(c.hook, hook) })
}

func (c *check) hookHadNoEffect(hook, format string, args ...any) {
	c.note(func() {
		if c.hook == "" {
			c.t.Errorf("dlocktest: Config.%s had no effect: %s", hook, fmt.Sprintf(format, args...))
		}
	})
	c.hookFailed(hook)
}

func (c *check) notChecked(why string) { c.note(func() { c.unproven = why }) }

func (c *check) closeLater(s session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = append(c.opened, s)
}

// expectEnd marks the session as one that may end from now on. If it has
// already ended, it counts as lost.
func (c *check) expectEnd(s session) {
	c.noteIfLost(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mayEnd[s] = true
}

func (c *check) isEnding(s session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mayEnd[s]
}

func (c *check) noteIfLost(s session) {
	err := s.Err()
	c.note(func() {
		if err != nil && !c.mayEnd[s] {
			c.lost = err
		}
	})
}

// closeGrace is far more than the few seconds that rule 9 allows, because test
// machines may be slow.
var closeGrace = 20 * time.Second

type waitTimer struct {
	began time.Time
	over  <-chan time.Time
}

func (c *check) startWait() waitTimer {
	return waitTimer{time.Now(), time.After(c.config.bound())}
}

func (t waitTimer) elapsed() time.Duration { return time.Since(t.began).Round(time.Millisecond) }

// rounds calls f up to n times, but less often on a slow store, so that the
// case does not time out.
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
