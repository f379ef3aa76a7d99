package dlocktest

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Node prefixes as locks form them, with W for writers and R for readers.
const (
	writer = "web1-W-"
	reader = "web2-R-"
	shared = "web1-R-" // the prefix of a writer's node after Downgrade
)

// nodeLike lists queue names that look like node names. Drivers might store
// both under one parent, or encode two names as the same key.
var nodeLike = []string{
	"order-1234567890", "order-1234567890~", "order-1234567890~~", "1234567890", "1234567890~", "job1732201234567",
	"web1-W-0000000000", "web1-R-0000000001", "x-999999999999999999", "x-9999999999999999999", "0000000000/0000000000~/web1-W-0000000000",
}

// badQueues and badPrefixes are names that CheckQueue and CheckPrefix refuse.
var (
	badQueues = []string{
		"", "/", "/q", "q/", "q//r", ".", "..", "q/../q", "q/.", "a\n", "a\x00", "a\xff", strings.Repeat("q", driver.MaxQueue+1),
	}
	badPrefixes = []string{
		"", "-", "web1", "/-", "a/b-", "../q2-", "a/", "a\n-", "a\x00-", "a\xff-", strings.Repeat("p", driver.MaxPrefix) + "-",
	}
)

// probeQueue is for trying the hooks of Config; no case uses it.
const probeQueue = "hook-probe"

func data() []byte { return []byte(`{"id":"` + rand.Text() + `"}`) }

func tryCreate(ctx context.Context, s driver.Session, queue, prefix string) (driver.Place, error) {
	j, err := tryJoin(ctx, s, queue, prefix, nil)
	return j.Place, err
}

// tryJoin creates a node, and then overwrites the node's data, as callers may.
func tryJoin(ctx context.Context, s driver.Session, queue, prefix string, predecessor func([]driver.Node) int) (driver.Joined, error) {
	d := data()
	defer clear(d)
	return s.Create(ctx, queue, driver.NodeSpec{Prefix: prefix, Data: d, Predecessor: predecessor})
}

// last is the Predecessor of a writer, which waits for the last node ahead.
func last(ahead []driver.Node) int { return len(ahead) - 1 }

// named returns p without its token, for a caller that knows only the name.
func named(p driver.Place) driver.Place { return driver.Place{Node: p.Node} }

func has(nodes []driver.Node, n driver.Node) bool { return slices.Contains(nodes, n) }

func without(nodes []driver.Node, n driver.Node) []driver.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(m driver.Node) bool { return m == n })
}

func among(nodes, all []driver.Node) []driver.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n driver.Node) bool { return !has(all, n) })
}

func nodesOf(places []driver.Place) []driver.Node {
	nodes := make([]driver.Node, len(places))
	for i, p := range places {
		nodes[i] = p.Node
	}
	return nodes
}

func byToken(a, b driver.Place) int { return cmp.Compare(a.Token, b.Token) }
