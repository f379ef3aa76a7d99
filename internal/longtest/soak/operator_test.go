//go:build linux || darwin

package soak

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/zktest"
)

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

// operatorFault repeats do until it succeeds, because servers may not answer.
func operatorFault(what string, do func(*operator) bool) func(*round) (func(), string) {
	return func(s *round) (func(), string) {
		if !s.targets.Reserve("tampered") {
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
	conn  *zk.Conn
	queue string
}

func (s *round) runOperator(do func(*operator) bool) bool {
	conn, end, err := zktest.Connect(10*time.Second, s.ensemble.Addrs()...)
	if err != nil {
		return false
	}
	defer end()
	o := &operator{conn, s.chroot + "/" + tamperedLock}
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if do(o) {
			return true
		}
	}
	return false
}

func (o *operator) nodes() []string {
	names, _, _ := o.conn.Children(o.queue)
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(a[max(0, len(a)-10):], b[max(0, len(b)-10):]) })
	return names
}

func (o *operator) remove(name string) bool { return o.conn.Delete(o.queue+"/"+name, -1) == nil }

func (o *operator) removeQueue() bool {
	for _, name := range o.nodes() {
		o.remove(name)
	}
	return o.conn.Delete(o.queue, -1) == nil
}
