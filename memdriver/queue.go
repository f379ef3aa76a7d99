package memdriver

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// idleQueues is how many empty queues a store remembers.
const idleQueues = 1024

// queue is one incarnation of a queue.
type queue struct {
	name  string
	epoch int64   // differs from that of every other incarnation in the store
	next  int64   // the sequence of the next node
	nodes []*node // in the order of creation: rule 1
}

// node is a member of a queue.
type node struct {
	driver.Node
	token     int64   // no other node of the store ever gets it: rules 3 and 7
	owner     *record // nil for a node that belongs to no session
	call      int64   // the owner's Create that made it
	contender bool    // false for a node that another program made under some other name
	data      []byte
	created   time.Time
}

// info is what a session learns from Read. The data is a copy.
func (n *node) info(reader *record) driver.NodeInfo {
	info := driver.NodeInfo{Node: n.Node, Token: n.token, Data: bytes.Clone(n.data), Foreign: n.owner != reader, Created: n.created}
	if n.owner != nil {
		info.Owner = n.owner.id
	}
	return info
}

// list returns the contenders, oldest first: rule 1.
func (q *queue) list() []driver.Node {
	nodes := make([]driver.Node, 0, len(q.nodes))
	for _, n := range q.nodes {
		if n.contender {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes
}

// withToken returns a function that recognises the node at a place, whatever its name
// is now.
func withToken(p driver.Place) func(*node) bool {
	return func(n *node) bool { return n.token == p.Token }
}

// withName returns a function that recognises the node of that name.
func withName(name string) func(*node) bool {
	return func(n *node) bool { return n.Name == name }
}

// within reports whether a queue is at prefix or below it.
func within(name, prefix string) bool {
	below, ok := strings.CutPrefix(name, prefix)
	return ok && (prefix == "" || below == "" || below[0] == '/')
}

// All methods below are called with the store's mutex held.

// open returns the queue of that name. It makes the queue if it is missing.
func (st *Store) open(name string) *queue {
	q := st.queues[name]
	if q == nil {
		st.epochs++
		q = &queue{name: name, epoch: st.epochs, next: st.sequenceStart}
		st.queues[name] = q
	}
	return q
}

// find returns a queue and the first of its nodes that matches, or nil.
func (st *Store) find(queue string, match func(*node) bool) (*queue, *node) {
	if q := st.queues[queue]; q != nil {
		if i := slices.IndexFunc(q.nodes, match); i >= 0 {
			return q, q.nodes[i]
		}
	}
	return nil, nil
}

// add appends a node to its queue, with the next token: rules 1 and 3. The caller
// calls updateIdle afterwards.
func (st *Store) add(q *queue, n *node) {
	st.tokens++
	n.token, n.created = st.tokens, time.Now()
	if n.contender {
		q.next = n.Seq + 1
	}
	q.nodes = append(q.nodes, n)
	st.notify(q.name, driver.Node{}, driver.Changed)
}

// remove takes a node out of its queue and tells the sessions why.
func (st *Store) remove(q *queue, n *node, why driver.Cause) {
	i := slices.Index(q.nodes, n)
	q.nodes = slices.Delete(q.nodes, i, i+1)
	st.notify(q.name, n.Node, why)
	st.updateIdle(q)
}

// updateIdle keeps the list of idle queues after a change of q. If there are too
// many, updateIdle forgets the one that has been idle for longest. Otherwise a
// program that invents ever new names of locks would fill the memory.
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

// forget removes a queue: the next node of that name begins a new incarnation.
func (st *Store) forget(q *queue) {
	delete(st.queues, q.name)
	if i := slices.Index(st.idle, q); i >= 0 {
		st.idle = slices.Delete(st.idle, i, i+1)
	}
}
