package cas

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// queue is the value of a queue's key.
type queue struct {
	Nodes    []node `json:",omitempty"` // oldest first
	Last     int64  // the greatest token so far
	Released string `json:",omitempty"` // name of the node that was released last

	revision int64
}

// node is a node of a queue. Nodes of other programs only have names and data.
type node struct {
	// Name is just the prefix if Token is zero and the node has an owner.
	Name string
	// Token is zero until the queue is written again: the write that adds a node
	// does not know its own revision, and so readers fill it in. It is also the
	// sequence.
	Token  int64  `json:",omitempty"`
	Owner  string `json:",omitempty"`
	Number int64  `json:",omitempty"` // of the Create in the session
	Data   []byte `json:",omitempty"`
}

func (n node) place() driver.Place {
	_, seq, _ := driver.ParseName(n.Name)
	return driver.Place{Node: driver.Node{Name: n.Name, Seq: seq}, Token: n.Token}
}

func (n node) proof() string {
	if n.Owner == "" {
		return ""
	}
	return fmt.Sprintf("%s %d", n.Owner, n.Number)
}

func decode(e Entry) (q queue, err error) {
	if e.Value != nil {
		if err := json.Unmarshal(e.Value, &q); err != nil {
			return q, fmt.Errorf("key %s: %w", e.Key, err)
		}
	}
	return q.at(e.Revision), nil
}

// mustJSON encodes a value of one of this package's types, which never fails.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// at returns the queue as it was written with a revision.
func (q queue) at(revision int64) queue {
	q.revision = revision
	for i := range q.Nodes {
		if n := &q.Nodes[i]; n.Token == 0 && n.Owner != "" {
			n.Token = max(revision, q.Last+1) // Last is greater if a backup was restored
			n.Name = driver.FormatName(n.Name, n.Token)
		}
		q.Last = max(q.Last, q.Nodes[i].Token)
	}
	return q
}

func (q queue) index(match func(node) bool) int { return slices.IndexFunc(q.Nodes, match) }

func (q queue) owned(id string) bool {
	return q.index(func(n node) bool { return n.Owner == id }) >= 0
}

func (q queue) has(name string) bool {
	return q.index(func(n node) bool { return n.Name == name }) >= 0
}

// others returns the owners of nodes besides one session, some of them repeatedly.
func (q queue) others(id string) (ids []string) {
	for _, n := range q.Nodes {
		if n.Owner != "" && n.Owner != id {
			ids = append(ids, n.Owner)
		}
	}
	return ids
}

func (q queue) snapshot() session.Snapshot {
	now := session.Snapshot{Version: q.revision + 1, Released: q.Released}
	for _, n := range q.Nodes {
		now.Nodes = append(now.Nodes, session.Node{Name: n.Name, Token: n.Token, Proof: n.proof()})
	}
	return now
}
