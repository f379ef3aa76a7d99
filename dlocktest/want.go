package dlocktest

import (
	"context"
	"errors"
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// mayFail checks the error of a call that may fail, because the driver may not
// know the outcome. It reports whether the call failed.
func (c *check) mayFail(what string, s driver.Session, ctx context.Context, err error) (failed bool) {
	switch {
	case err == nil:
		return false
	case ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		c.errorf("%s returned %q, which matches an error of package context although its ctx has not ended: it would look like the caller's own deadline (rule 10)",
			what, err)
	case errors.Is(err, driver.ErrUnavailable):
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case errors.Is(err, driver.ErrSessionEnded) && s.Err() != nil:
	default:
		c.errorf("%s returned %q, expected success, an error that matches ErrUnavailable, the error of its ctx, or the end of the session (rule 10)",
			what, err)
	}
	return true
}

// endedWithConnection reports whether the session has ended, and logs it. That
// is no failure, because a driver may give up a session whose connection broke.
func (c *check) endedWithConnection(s driver.Session) bool {
	err := s.Err()
	if err != nil {
		c.logf("the session ended with its connection: %v", err)
	}
	return err != nil
}

func (c *check) wantEnded(what string, err error) {
	if !errors.Is(err, driver.ErrSessionEnded) {
		c.fatalf("after the end of the session %s returned %v, expected an error that matches ErrSessionEnded", what, err)
	}
}

// wantGone checks the error of a call for a node that is gone: it has to match
// ErrGone, and must not match ErrUnavailable.
func (c *check) wantGone(what string, err error) {
	switch {
	case !errors.Is(err, driver.ErrGone):
		c.errorf("%s of a node that is gone returned %v, expected an error that matches ErrGone", what, err)
	case errors.Is(err, driver.ErrUnavailable):
		c.errorf("%s of a node that is gone returned %q, which matches ErrUnavailable: a Lock would repeat it for ever", what, err)
	}
}

// wantDeleted checks the error of a Delete that repeats a successful one: it
// has to be nil or match ErrGone.
func (c *check) wantDeleted(what string, err error) {
	if err != nil && !errors.Is(err, driver.ErrGone) {
		c.errorf("%s after a Delete of the node that succeeded returned %q, expected nil or an error that matches ErrGone", what, err)
	}
}

// wantName checks the error of a call with a bad name: it has to match
// ErrBadName, and must not match ErrUnavailable.
func (c *check) wantName(what string, err error) {
	switch {
	case !errors.Is(err, driver.ErrBadName):
		c.errorf("%s returned %v, expected an error that matches ErrBadName", what, err)
	case errors.Is(err, driver.ErrUnavailable):
		c.errorf("%s returned %q, which matches ErrUnavailable: a Lock would repeat it for ever", what, err)
	}
}

// wantNodes compares a list with the nodes that were expected.
func (c *check) wantNodes(what string, got []driver.Node, want ...driver.Node) {
	if !slices.Equal(got, want) {
		c.fatalf("%s: List returned %v, expected %v", what, got, want)
	}
}

func has(nodes []driver.Node, n driver.Node) bool { return slices.Contains(nodes, n) }

func without(nodes []driver.Node, n driver.Node) []driver.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(m driver.Node) bool { return m == n })
}

func withPrefix(nodes []driver.Node, prefix string) (found []driver.Node) {
	for _, n := range nodes {
		if p, _, ok := driver.ParseName(n.Name); ok && p == prefix {
			found = append(found, n)
		}
	}
	return found
}

func nodesOf(places []driver.Place) []driver.Node {
	nodes := make([]driver.Node, len(places))
	for i, p := range places {
		nodes[i] = p.Node
	}
	return nodes
}

func byToken(a, b driver.Place) int {
	switch {
	case a.Token < b.Token:
		return -1
	case a.Token > b.Token:
		return 1
	}
	return 0
}

func (c *check) wantAlive(s driver.Session, after string) {
	if err := s.Err(); err != nil {
		c.fatalf("the session ended after %s: Err returned %q, expected nil", after, err)
	}
}
