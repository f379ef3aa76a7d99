package session

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// Queue is the content of a queue, for a store that keeps it as one value.
type Queue struct {
	Nodes    []Row  `json:",omitempty"` // oldest first
	Released string `json:",omitempty"` // see Snapshot
	Value    []byte `json:",omitzero"`
	Setter   int64  `json:",omitempty"` // token of the node that set the Value
}

// Row is a node in a [Queue].
type Row struct {
	Name   string
	Token  int64  `json:",omitempty"` // also the sequence; zero for other programs' nodes
	Owner  string `json:",omitempty"` // ID of the session, or empty
	Number int64  `json:",omitempty"` // Change.Number of its Create
	Data   []byte `json:",omitempty"`
}

// Apply makes a change for a session, which must exist in the store. For a
// Create, it returns the new node, which gets the token. For any other change,
// it returns the node as it was before the change. An error matches
// driver.ErrGone or driver.ErrStale, and the queue is then unchanged.
func (q *Queue) Apply(c Change, session string, token int64) (n Row, err error) {
	if c.Kind == Create {
		n = Row{driver.FormatName(c.Prefix, token), token, session, c.Number, c.Data}
		q.Nodes = append(q.Nodes, n)
		return n, nil
	}
	i := slices.IndexFunc(q.Nodes, func(n Row) bool {
		if c.Kind == Remove {
			return n.Name == c.Place.Name && n.Token == c.Place.Token
		}
		return n.Owner == session && n.Token == c.Place.Token
	})
	if i < 0 {
		return n, driver.ErrGone
	}
	n = q.Nodes[i]
	switch {
	case c.Kind == Replace:
		q.Nodes[i].Name = driver.FormatName(c.Prefix, n.Token)
	case c.Kind != SetValue:
		q.Nodes = slices.Delete(q.Nodes, i, i+1)
		if c.Cause == driver.Released {
			q.Released = n.Name
		}
	case q.Setter > c.Place.Token:
		return n, driver.ErrStale
	default:
		q.Value, q.Setter = c.Data, c.Place.Token
	}
	return n, nil
}

// Keep removes the nodes that do not match, and reports whether there were any.
func (q *Queue) Keep(match func(Row) bool) (changed bool) {
	before := len(q.Nodes)
	q.Nodes = slices.DeleteFunc(q.Nodes, func(n Row) bool { return !match(n) })
	return len(q.Nodes) < before
}

// Place returns the place of a node that a session has made.
func (n Row) Place() driver.Place {
	return driver.Place{Node: driver.Node{Name: n.Name, Seq: n.Token}, Token: n.Token}
}

// Snapshot returns the queue as [Store.Look] returns it.
func (q Queue) Snapshot(version int64) Snapshot {
	now := Snapshot{Version: version, Released: q.Released, Value: q.Value, ValueToken: q.Setter}
	for _, n := range q.Nodes {
		now.Nodes = append(now.Nodes, Node{Name: n.Name, Token: n.Token, Owner: n.Owner, Data: n.Data})
	}
	return now
}
