package dlocktest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// How many times a case may run. A failed case runs again only if a session
// ended unexpectedly, as on a busy machine.
const (
	attempts        = 5
	stalledAttempts = 12 // after an attempt on a busy machine
)

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
		first, _, _ := strings.Cut(c.failures[0], "\n")
		t.Logf("attempt %d failed after a session had ended by itself (%v), in a process that did not run for up to %v; trying again: %s",
			n, c.lost, c.stall.Round(time.Millisecond), first)
		if n > 1 {
			time.Sleep(config.sessionTimeout()) // let a busy machine or store recover
		}
	}
}

func (c *check) attempt() {
	most := 2*c.config.bound() + closeGrace
	ctx, cancel := context.WithTimeout(context.Background(), most-closeGrace/2)
	defer cancel()
	c.ctx = ctx
	c.mayEnd = make(map[session]bool)
	c.cuts = make(map[session]bool)
	c.drops = make(map[session]driver.Node)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		defer c.cleanUp()
		defer c.suspectHooks()
		c.testCase.run(c)
	}()
	defer c.note(func() { c.abandoned = true })
	defer c.measureStalls()()
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-finished:
	case <-limit.C:
		c.errorf("the driver hung: the case and the Close of its sessions took longer than %v\ngoroutines:\n%s", most, stacks())
	}
}

// cleanUp ends an attempt, so that the store can be shut down.
func (c *check) cleanUp() {
	c.mu.Lock()
	sessions, heals, clients := c.opened, c.heals, c.clients
	c.mu.Unlock()
	for _, s := range sessions {
		c.noteIfLost(s)
	}
	var wg sync.WaitGroup
	for _, heal := range heals {
		// heal may call t.Fatal, which exits its goroutine.
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

// measureStalls detects a busy machine: until stop is called, it records in
// c.stall the longest delay of a timer.
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

func (c *check) stalled() bool { return c.stall > c.config.sessionTimeout()/10 }

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

// suspectHooks checks after a failure whether Config.CutOff and Config.Drop had
// any effect. Call it before cuts heal, because requests pass after that.
func (c *check) suspectHooks() {
	c.mu.Lock()
	cuts, drops, store, look := maps.Clone(c.cuts), maps.Clone(c.drops), c.store, len(c.failures) > 0 && !c.abandoned
	c.mu.Unlock()
	if !look || store == nil || len(cuts)+len(drops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*c.config.sessionTimeout())
	defer cancel()
	other, err := store.Connect(ctx)
	if err != nil {
		return
	}
	c.closeLater(other)
	listed := func(n driver.Node) bool {
		nodes, err := other.List(ctx, probeQueue)
		return err == nil && has(nodes, n)
	}
	for s := range cuts {
		short, cancel := context.WithTimeout(ctx, c.config.sessionTimeout()/4)
		p, err := tryCreate(short, s, probeQueue, writer)
		cancel()
		if err == nil && listed(p.Node) {
			c.suspectHook("Config.CutOff had no effect: Create made the node %s in a session that is cut off", p.Name)
		}
	}
	for s, n := range drops {
		if s.Err() == nil && listed(n) {
			c.suspectHook("Config.Drop had no effect: the session lives, and List returns its node %s", n.Name)
		}
	}
}

func (c *check) suspectHook(format string, args ...any) {
	c.note(func() { c.suspect = fmt.Sprintf(format, args...) })
}
