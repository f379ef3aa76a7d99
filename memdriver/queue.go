package memdriver

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// idleQueues limits how many empty queues a store remembers.
const idleQueues = 1024

type queue struct {
	name  string
	epoch int64 // changes whenever the sequences start over
	next  int64
	nodes []*node // in order of creation
}

type node struct {
	driver.Node
	token     int64   // fencing token, unique in the store
	owner     *record // nil for foreign nodes
	call      int64   // ordinal of the owner's Create, from 1
	contender bool    // whether List shows the node
	data      []byte
	created   time.Time
}

func (n *node) info(reader *record) driver.NodeInfo {
	info := driver.NodeInfo{Node: n.Node, Token: n.token, Data: bytes.Clone(n.data), Foreign: n.owner != reader, Created: n.created}
	if n.owner != nil {
		info.Owner = n.owner.id
		info.SessionLeft = max(0, n.owner.timeout-time.Since(n.owner.heard))
	}
	return info
}

// list returns what List shows, oldest first (rule 1 of package driver).
func (q *queue) list() []driver.Node {
	nodes := make([]driver.Node, 0, len(q.nodes))
	for _, n := range q.nodes {
		if n.contender {
			nodes = append(nodes, n.Node)
		}
	}
	return nodes
}

// withToken matches a node by its token, because a Replace changes the name.
func withToken(p driver.Place) func(*node) bool {
	return func(n *node) bool { return n.token == p.Token }
}

func withName(name string) func(*node) bool {
	return func(n *node) bool { return n.Name == name }
}

// within reports whether a queue name equals prefix or is below it. All names
// are below the empty prefix.
func within(name, prefix string) bool {
	below, ok := strings.CutPrefix(name, prefix)
	return ok && (prefix == "" || below == "" || below[0] == '/')
}

// The methods below require the store's mutex.

func (st *Store) open(name string) *queue {
	q := st.queues[name]
	if q == nil {
		st.epochs++
		q = &queue{name: name, epoch: st.epochs, next: st.sequenceStart}
		st.queues[name] = q
	}
	return q
}

func (st *Store) find(queue string, match func(*node) bool) (*queue, *node) {
	if q := st.queues[queue]; q != nil {
		if i := slices.IndexFunc(q.nodes, match); i >= 0 {
			return q, q.nodes[i]
		}
	}
	return nil, nil
}

// add appends a node to its queue and assigns the next token. The caller must
// then call updateIdle.
func (st *Store) add(q *queue, n *node) {
	st.tokens++
	n.token, n.created = st.tokens, time.Now()
	if n.contender {
		q.next = n.Seq + 1
	}
	q.nodes = append(q.nodes, n)
	st.notify(q.name, driver.Node{}, driver.Changed)
}

func (st *Store) remove(q *queue, n *node, why driver.Cause) {
	i := slices.Index(q.nodes, n)
	q.nodes = slices.Delete(q.nodes, i, i+1)
	st.notify(q.name, n.Node, why)
	st.updateIdle(q)
}

// updateIdle forgets the queue that has been empty longest if too many are
// empty. Otherwise new lock names would leak memory.
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

func (st *Store) forget(q *queue) {
	delete(st.queues, q.name)
	if i := slices.Index(st.idle, q); i >= 0 {
		st.idle = slices.Delete(st.idle, i, i+1)
	}
}
