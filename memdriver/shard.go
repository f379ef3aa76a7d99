package memdriver

import (
	"sync"

	"github.com/dlock-go/dlock/driver"
)

const (
	shardCount = 16
	// idleQueues is how many empty queues a shard remembers. Queues are spread
	// over the shards evenly enough for the last thousand to be among them.
	idleQueues = 2 * 1024 / shardCount
)

// shard is a part of a store's queues under one lock. Sessions that use
// different queues seldom meet in it.
type shard struct {
	mu     sync.Mutex
	queues map[string]*queue
	idle   list[*queue] // without nodes and watches, the one that has been so for longest first
	nodes  int
	armed  int      // watches
	fired  []*watch // since lock
}

func (sh *shard) lock() { sh.mu.Lock() }

// unlock also lets go of the contexts of the watches that fired under the lock.
// What a context does then is foreign code, which must not run under a lock.
func (sh *shard) unlock() {
	fired := sh.fired
	sh.fired = nil
	sh.mu.Unlock()
	for _, w := range fired {
		w.release()
	}
}

// The methods below are called with the lock held.

// settle keeps the list of idle queues after a change of q. When there are too
// many it forgets the one that has been idle for longest, so that a program that
// invents ever new names of locks does not fill the memory.
func (sh *shard) settle(q *queue) {
	sh.idle.remove(&q.idle)
	if q.inUse() {
		return
	}
	sh.idle.pushBack(&q.idle, q)
	if sh.idle.len > idleQueues {
		sh.forget(sh.idle.front())
	}
}

func (sh *shard) forget(q *queue) {
	sh.idle.remove(&q.idle)
	delete(sh.queues, q.name)
}

// add appends a node to its queue: rule 1.
func (sh *shard) add(n *node) {
	n.queue.add(n)
	sh.nodes++
	sh.fire(&n.queue.watches, driver.Changed)
	sh.settle(n.queue)
}

// remove takes a node out of its queue, by whatever route that came about, and
// fires what watches it; why is what watches of the node itself are told. A node that is out
// already stays out.
func (sh *shard) remove(n *node, why driver.Cause) {
	q := n.queue
	if q.byToken[n.token] != n {
		return
	}
	q.remove(n)
	sh.nodes--
	if n.owner != nil {
		n.owner.disown(n)
	}
	sh.fire(&n.watches, why)
	sh.fire(&q.watches, driver.Changed)
	sh.settle(q)
}

// find returns the node of that name, or nil.
func (sh *shard) find(queue, name string) *node {
	if q := sh.queues[queue]; q != nil {
		return q.byName[name]
	}
	return nil
}

// holder returns the node that stands at a place, whatever its name is now, or
// nil.
func (sh *shard) holder(queue string, p driver.Place) *node {
	if q := sh.queues[queue]; q != nil {
		return q.byToken[p.Token]
	}
	return nil
}

// arm adds a watch to a list, which belongs to q or to one of its nodes.
func (sh *shard) arm(w *watch, on *list[*watch], q *queue) {
	w.queue, w.on = q, on
	on.pushBack(&w.armed, w)
	sh.armed++
	sh.settle(q)
}

// disarm takes a watch away, if it is still there.
func (sh *shard) disarm(w *watch) {
	if w.on == nil {
		return
	}
	w.on.remove(&w.armed)
	w.on = nil
	sh.armed--
	sh.settle(w.queue)
}

// fire ends the watches of a list, in the order in which they were armed.
func (sh *shard) fire(watches *list[*watch], why driver.Cause) {
	for w := range watches.all() {
		sh.disarm(w)
		sh.end(w, why)
	}
}

// end tells the session of a watch that it has ended.
func (sh *shard) end(w *watch, why driver.Cause) {
	w.session.deliver(w, why)
	sh.fired = append(sh.fired, w)
}
