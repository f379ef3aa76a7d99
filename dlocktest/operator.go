package dlocktest

import (
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// operatorTrials holds a function for each hook that acts as an operator or as another
// program. The function calls the hook, and reports it if the queue shows no effect.
var operatorTrials = map[need]func(c *check){
	needRemoveNode: func(c *check) {
		p := c.create(c.session(), probeQueue, writer)
		c.removeNode(probeQueue, p.Name)
		c.wantEffect("RemoveNode", p.Name, func(nodes []driver.Node) bool { return !has(nodes, p.Node) })
	},
	needRemoveQueue: func(c *check) {
		p := c.create(c.session(), probeQueue, writer)
		c.removeQueue(probeQueue)
		c.wantEffect("RemoveQueue", p.Name, func(nodes []driver.Node) bool { return !has(nodes, p.Node) })
	},
	needPutNode: func(c *check) {
		const foreign = "legacy-0000000000"
		c.session() // may make the tables of the store
		c.putNode(probeQueue, foreign, "not a lock's")
		c.wantEffect("PutNode", foreign, func(nodes []driver.Node) bool {
			return slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == foreign })
		})
	},
}

// tryOperator fails t if a hook that acts as an operator has no effect. Such a hook
// makes some cases fail on a sound driver, and makes others pass on a broken driver.
// Like probe, tryOperator runs in no subtest.
func tryOperator(t *testing.T, config Config) {
	t.Helper()
	have := config.hooks()
	for n, try := range operatorTrials {
		for i := 0; i < attempts && have&n != 0; i++ {
			c := &check{t: t, config: config, testCase: testCase{run: try}}
			c.attempt()
			if c.lost == nil { // the cases report every other failure
				break
			}
		}
	}
}

// wantEffect reports a hook if its effect on a node of probeQueue has not happened. It
// lists the queue by a session that has begun after the call of the hook.
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
