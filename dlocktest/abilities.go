package dlocktest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// probe determines the abilities of the driver's sessions. It is not a subtest,
// because a -run pattern of go test might skip it.
func probe(t *testing.T, config Config) (have need) {
	t.Helper()
	if v := runCase(t, config, 0, rule{number: 10, name: "methods"}, testCase{
		name: "connect",
		why:  "nothing else can be checked without a session",
		run:  func(c *check) { c.session() },
	}); v != passed {
		t.FailNow()
	}
	for n, try := range trials {
		if succeeds(t, config, try) {
			have |= n
		}
	}
	for n, call := range inspections {
		if succeeds(t, config, func(c *check, s, _ session) bool {
			return !errors.Is(call(c, driver.Inspect(s), c.create(s, "abilities", writer)), errors.ErrUnsupported)
		}) {
			have |= n
		}
	}
	for _, a := range config.Abilities {
		switch n := needOf(a); {
		case n == 0:
			t.Errorf("dlocktest: Config.Abilities holds %q, which is no ability", a)
		case have&n != n:
			t.Errorf("dlocktest: Config.Abilities holds %s, and the driver's sessions do not have that ability", a)
		}
	}
	return have
}

// succeeds returns the result of try, retrying after a lost session. It reports
// no failure, because the test cases will.
func succeeds(t *testing.T, config Config, try func(c *check, a, b session) bool) bool {
	for range attempts {
		can := make(chan bool, 1)
		c := &check{t: t, config: config, testCase: testCase{run: func(c *check) { can <- try(c, c.session(), c.session()) }}}
		c.attempt()
		select {
		case can := <-can:
			return can
		default:
		}
		if c.lost == nil {
			break
		}
	}
	return false
}

var inspections = map[need]func(c *check, i driver.Inspector, p driver.Place) error{
	needRead: func(c *check, i driver.Inspector, p driver.Place) error {
		_, err := i.Read(c.ctx, "abilities", p.Name)
		return err
	},
	needWalk:   func(c *check, i driver.Inspector, _ driver.Place) error { _, err := i.Walk(c.ctx, ""); return err },
	needRemove: func(c *check, i driver.Inspector, p driver.Place) error { return i.Remove(c.ctx, "abilities", p) },
	needValue: func(c *check, i driver.Inspector, _ driver.Place) error {
		_, _, err := i.Value(c.ctx, "abilities")
		return err
	},
}

// trials has, for each Ability except AbilityInspect, a function that reports
// whether the driver has that ability.
var trials = map[need]func(c *check, a, b session) bool{
	needCheck: func(c *check, _, _ session) bool {
		checker, can := c.connector().(driver.Checker)
		if can {
			_, err := checker.Check(c.ctx)
			can = !errors.Is(err, errors.ErrUnsupported)
		}
		return can
	},
	needAhead: func(c *check, a, b session) bool {
		return c.join(a, "abilities", writer, nil).Known || c.join(b, "abilities", writer, last).Known
	},
	needArmed: func(c *check, a, b session) bool {
		c.create(a, "abilities", writer)
		return c.join(b, "abilities", writer, last).Watch.C != nil || c.join(a, "abilities", writer, last).Watch.C != nil
	},
	needReleased: func(c *check, a, b session) bool {
		c.waitOnce(a, b, "abilities")
		for range 20 { // on slow machines, watches may miss a release
			p := c.create(a, "abilities", writer)
			q, w := c.waitFor(b, "abilities", p.Node)
			c.release(a, "abilities", p)
			if c.awaitNews(w, "release of the node ahead") {
				return true
			}
			c.delete(b, "abilities", q)
		}
		return false
	},
}

// tryOperator fails t if RemoveNode, RemoveQueue or PutNode of Config does
// nothing. With such a hook, correct drivers could fail and broken ones pass.
func tryOperator(t *testing.T, config Config) {
	t.Helper()
	have := config.hooks()
	for n, try := range operatorTrials {
		for i := 0; i < attempts && have&n != 0; i++ {
			c := &check{t: t, config: config, testCase: testCase{run: try}}
			c.attempt()
			if c.lost == nil { // retry only after a lost session
				break
			}
		}
	}
}

// operatorTrials tests the Config hooks that act as an operator. Each test
// fails if its hook did not change the queue.
var operatorTrials = map[need]func(c *check){
	needRemoveNode:  removes("RemoveNode", func(c *check, p driver.Place) { c.removeNode(probeQueue, p.Name) }),
	needRemoveQueue: removes("RemoveQueue", func(c *check, _ driver.Place) { c.removeQueue(probeQueue) }),
	needPutNode: func(c *check) {
		const foreign = "legacy-0000000000"
		c.session() // makes the driver create its tables
		c.putNode(probeQueue, foreign, "not a lock's")
		c.wantEffect("PutNode", foreign, func(nodes []driver.Node) bool {
			return slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == foreign })
		})
	},
}

func removes(hook string, remove func(c *check, p driver.Place)) func(*check) {
	return solo(func(c *check, s session) {
		p := c.create(s, probeQueue, writer)
		remove(c, p)
		c.wantEffect(hook, p.Name, func(nodes []driver.Node) bool { return !has(nodes, p.Node) })
	})
}

// wantEffect lists the queue with a new session, which cannot have cached its
// old state.
func (c *check) wantEffect(hook, name string, happened func([]driver.Node) bool) {
	s := c.session()
	over := time.Now().Add(c.config.sessionTimeout())
	nodes := c.listAfterWrite(s, probeQueue)
	for !happened(nodes) {
		if time.Now().After(over) {
			c.hookHadNoEffect(hook, "it was called for the node %s, and a session that began after that lists %v", name, nodes)
			return
		}
		time.Sleep(retryPause)
		nodes = c.listAfterWrite(s, probeQueue)
	}
}
