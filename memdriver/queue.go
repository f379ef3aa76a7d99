package memdriver

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// idleQueues is the number of empty queues that a store remembers.
const idleQueues = 1024

// queue is a queue, from its making until it is removed or forgotten.
type queue struct {
	name  string
	epoch int64   // changes when the queue is made, and when its sequences start over
	next  int64   // sequence of the next node
	nodes []*node // in order of creation
}

type node struct {
	driver.Node
	token     int64   // fencing token, unique in the store
	owner     *record // nil if the node belongs to no session
	call      int64   // number of the owner's Create that made the node, from 1
	contender bool    // whether List shows the node; false for some foreign nodes
	data      []byte
	created   time.Time
}

// info returns the result of a Read. The data is a copy.
func (n *node) info(reader *record) driver.NodeInfo {
	info := driver.NodeInfo{Node: n.Node, Token: n.token, Data: bytes.Clone(n.data), Foreign: n.owner != reader, Created: n.created}
	if n.owner != nil {
		info.Owner = n.owner.id
	}
	return info
}

// list returns the contenders' nodes, oldest first: rule 1 of package driver.
func (q *queue) list() []driver.Node {
	nodes := make([]driver.Node, 0, len(q.nodes))
	for _, n := range q.nodes {
		if n.contender {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes
}

// withToken returns a function that matches the node with the token of p, under
// any name.
func withToken(p driver.Place) func(*node) bool {
	return func(n *node) bool { return n.token == p.Token }
}

func withName(name string) func(*node) bool {
	return func(n *node) bool { return n.Name == name }
}

// within reports whether prefix names the queue or one above it. Every queue is
// below an empty prefix.
func within(name, prefix string) bool {
	below, ok := strings.CutPrefix(name, prefix)
	return ok && (prefix == "" || below == "" || below[0] == '/')
}

// The methods below are called with the store's mutex held.

// open returns the queue with that name, and makes it if it is missing.
func (st *Store) open(name string) *queue {
	q := st.queues[name]
	if q == nil {
		st.epochs++
		q = &queue{name: name, epoch: st.epochs, next: st.sequenceStart}
		st.queues[name] = q
	}
	return q
}

// find returns the first node of the queue that matches, with the queue, or nil
// for both.
func (st *Store) find(queue string, match func(*node) bool) (*queue, *node) {
	if q := st.queues[queue]; q != nil {
		if i := slices.IndexFunc(q.nodes, match); i >= 0 {
			return q, q.nodes[i]
		}
	}
	return nil, nil
}

// add appends a node to its queue and gives it the next token: rules 1 and 3.
// The caller must call updateIdle.
func (st *Store) add(q *queue, n *node) {
	st.tokens++
	n.token, n.created = st.tokens, time.Now()
	if n.contender {
		q.next = n.Seq + 1
	}
	q.nodes = append(q.nodes, n)
	st.notify(q.name, driver.Node{}, driver.Changed)
}

// remove removes a node from its queue and notifies the sessions.
func (st *Store) remove(q *queue, n *node, why driver.Cause) {
	i := slices.Index(q.nodes, n)
	q.nodes = slices.Delete(q.nodes, i, i+1)
	st.notify(q.name, n.Node, why)
	st.updateIdle(q)
}

// updateIdle updates the list of idle queues after a change of q. If the list
// is too long, it forgets the queue that has been idle longest. Otherwise a
// program that uses a new name for each lock would fill the memory.
func (st *Store) updateIdle(q *queue) {
	if i := slices.Index(st.idle, q); i >= 0 {
		st.idle = slices.Delete(st.idle, i, i+1)
	}
	if len(q.nodes) > 0 {
		return
	}
	st.idle = append(st.idle, q)
	if len(st.idle) > idleQueues {
		st.forget(st.idle[0])
	}
}

// forget removes an empty queue. If it is made again, it has another epoch.
func (st *Store) forget(q *queue) {
	delete(st.queues, q.name)
	if i := slices.Index(st.idle, q); i >= 0 {
		st.idle = slices.Delete(st.idle, i, i+1)
	}
}
