//go:build linux || darwin

package soak

import (
	"cmp"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

// operatorFaults are what people do to a store by hand. They wait for somebody to be there whom they can hit.
var operatorFaults = []faultKind{
	{name: "operator removes the node of a holder", last: true, inject: tamper("node of a holder removed", func(o *operator) bool {
		nodes := o.nodes()
		return len(nodes) > 0 && o.remove(nodes[0])
	})},
	{name: "operator removes the node of a waiter", last: true, inject: tamper("node of a waiter removed", func(o *operator) bool {
		nodes := o.nodes()
		return len(nodes) > 1 && o.remove(nodes[len(nodes)-1])
	})},
	{name: "operator removes a queue", last: true, inject: tamper("queue removed", (*operator).removeQueue)},
}

// tamper has an operator try until something is done. The store may not be there at present.
func tamper(what string, do func(*operator) bool) func(*sitting) (func(), string) {
	return func(s *sitting) (func(), string) {
		if !s.claim("tampered") {
			return nil, ""
		}
		var done atomic.Bool
		go func() {
			for !done.Load() && s.t.Context().Err() == nil {
				done.Store(s.operate(do))
			}
		}()
		return func() { s.await(what, done.Load) }, what
	}
}

// operator is somebody with a client of his own, who knows nothing of locks.
type operator struct {
	conn    *zk.Conn
	queue   string
	journal *journal
}

// operate tries for a while, on a new connection, and tells whether it was done.
func (s *sitting) operate(do func(*operator) bool) bool {
	conn, end, err := zktest.Connect(10*time.Second, s.ensemble.Addrs()...)
	if err != nil {
		return false
	}
	defer end()
	o := &operator{conn, s.chroot + "/" + tamperedLock, s.journal}
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if do(o) {
			return true
		}
	}
	return false
}

// nodes returns what is in the queue, oldest first.
func (o *operator) nodes() (nodes []driver.Node) {
	names, _, err := o.conn.Children(o.queue)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if _, seq, ok := driver.ParseName(name); ok {
			nodes = append(nodes, driver.Node{Name: name, Seq: seq})
		}
	}
	slices.SortFunc(nodes, func(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) })
	return nodes
}

// remove removes a node and tells whether it was there. If nobody knows, it counts as removed.
func (o *operator) remove(n driver.Node) bool {
	at := now()
	err := o.conn.Delete(o.queue+"/"+n.Name, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return false
	}
	o.journal.note(event{Kind: removed, At: at, Until: now(), Lock: tamperedLock, Node: n.Name})
	return err == nil
}

// removeQueue removes the queue with everything in it.
func (o *operator) removeQueue() bool {
	for _, n := range o.nodes() {
		o.remove(n)
	}
	return o.conn.Delete(o.queue, -1) == nil
}
