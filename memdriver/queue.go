package memdriver

import (
	"bytes"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// queue is one incarnation of a queue. Its shard's lock guards it.
type queue struct {
	name  string
	epoch int64 // differs from that of every other incarnation in the store
	next  int64 // the sequence of the next node

	nodes     list[*node] // in the order of creation: rule 1
	sequenced int         // how many of them are contenders
	byName    map[string]*node
	byToken   map[int64]*node

	watches list[*watch] // of any change of membership
	idle    link[*queue] // in the shard's list of idle queues
}

// node is a member of a queue. All but name, watches and links stays as it was
// created. Its queue's shard guards it.
type node struct {
	queue     *queue
	name      string
	seq       int64
	epoch     int64
	token     int64 // unique in the store for ever: what Delete and Replace go by
	sequenced bool
	data      []byte
	created   time.Time
	owner     *record // nil for a node that belongs to no session
	call      int64   // the owner's Create that made it

	watches list[*watch]
	member  link[*node] // in queue.nodes
	owned   link[*node] // in owner.nodes
}

func (n *node) id() driver.Node {
	return driver.Node{Name: n.name, Seq: n.seq, Epoch: n.epoch}
}

// info is what Read tells. The data is a copy.
func (n *node) info() driver.Info {
	info := driver.Info{Node: n.id(), Token: n.token, Data: bytes.Clone(n.data), Created: n.created}
	if n.owner != nil {
		info.Owner = n.owner.id
	}
	return info
}

// inUse reports whether the queue holds anything that it must remember.
func (q *queue) inUse() bool { return q.nodes.len > 0 || q.watches.len > 0 }

func (q *queue) add(n *node) {
	q.nodes.pushBack(&n.member, n)
	q.byName[n.name] = n
	q.byToken[n.token] = n
	if n.sequenced {
		q.sequenced++
	}
}

func (q *queue) remove(n *node) {
	q.nodes.remove(&n.member)
	delete(q.byName, n.name)
	delete(q.byToken, n.token)
	if n.sequenced {
		q.sequenced--
	}
}

// rename gives a node another name in the same place: rule 12.
func (q *queue) rename(n *node, name string) {
	delete(q.byName, n.name)
	n.name = name
	q.byName[name] = n
}

// list returns the contenders, oldest first: rule 1.
func (q *queue) list() []driver.Node {
	nodes := make([]driver.Node, 0, q.sequenced)
	for n := range q.nodes.all() {
		if n.sequenced {
			nodes = append(nodes, n.id())
		}
	}
	return nodes
}
