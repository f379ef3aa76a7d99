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

// operatorFaults are mistakes that an operator might make in the store.
var operatorFaults = []faultKind{
	{name: "operator removes the node of a holder", last: true, inject: operatorFault("node of a holder removed", func(o *operator) bool {
		nodes := o.nodes()
		return len(nodes) > 0 && o.remove(nodes[0])
	})},
	{name: "operator removes the node of a waiter", last: true, inject: operatorFault("node of a waiter removed", func(o *operator) bool {
		nodes := o.nodes()
		return len(nodes) > 1 && o.remove(nodes[len(nodes)-1])
	})},
	{name: "operator removes a queue", last: true, inject: operatorFault("queue removed", (*operator).removeQueue)},
}

// operatorFault returns a fault that repeats do until it succeeds, because
// other faults may prevent the servers from answering.
func operatorFault(what string, do func(*operator) bool) func(*round) (func(), string) {
	return func(s *round) (func(), string) {
		if !s.reserve("tampered") {
			return nil, ""
		}
		var done atomic.Bool
		go func() {
			for !done.Load() && s.t.Context().Err() == nil {
				done.Store(s.runOperator(do))
			}
		}()
		return func() { s.await(what, done.Load) }, what
	}
}

// operator is a plain ZooKeeper client that removes nodes by hand.
type operator struct {
	conn    *zk.Conn
	queue   string
	journal *journal
}

// runOperator repeats do on a new connection for at most five seconds, until it
// succeeds.
func (s *round) runOperator(do func(*operator) bool) bool {
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

// remove deletes a node and reports whether that is certain. It records a
// removal even if the outcome is unknown.
func (o *operator) remove(n driver.Node) bool {
	at := now()
	err := o.conn.Delete(o.queue+"/"+n.Name, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return false
	}
	o.journal.note(event{Kind: removed, At: at, Until: now(), Lock: tamperedLock, Node: n.Name})
	return err == nil
}

func (o *operator) removeQueue() bool {
	for _, n := range o.nodes() {
		o.remove(n)
	}
	return o.conn.Delete(o.queue, -1) == nil
}
