package dlocktest

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

var closeSabotages = []sabotage{
	{"deletes its nodes in Close before Done is closed", "cleaning up first and closing then",
		func(s *faulty) {
			nodes := s.places()
			s.on(faults.OpClose, func(r *request, send func()) {
				nodes.each(func(queue string, p driver.Place) { s.store.Faults().RemoveNode(queue, p.Name) })
				time.Sleep(5 * time.Millisecond)
				send()
			})
		}},
	{"removes in Close its session before its nodes", "a store that changes one key at a time", purgedFirst},
	{"returns an error from a second Close", "a client library whose Close may be called once",
		func(s *faulty) {
			var over atomic.Bool
			refuses(faults.OpClose, errors.New("closed already"), func(*request) bool { return over.Swap(true) })(s)
		}},
	{"leaves its nodes to the session timeout", "etcd, Redis: closing the connection and not revoking the lease",
		on(faults.OpClose, func(r *request, send func()) { r.s.leavesNodes() })},
	{"returns nil from Close although it could not reach the store", "an error of the clean-up that is ignored",
		func(s *faulty) {
			whole := s.cuts()
			s.on(faults.OpClose, func(r *request, send func()) {
				if closed(whole.healed()) {
					send()
				} else {
					s.leavesNodes()
				}
			})
		}},
	{"leaves its session in the store if the lease has run out", "a Close that returns early if the session has ended",
		refuses(faults.OpClose, nil, func(r *request) bool { return r.s.Err() != nil })},
	{"remembers the error of its first Close", "sync.Once around all of Close",
		func(s *faulty) {
			once := sync.OnceValue(s.base.Close)
			s.on(faults.OpClose, func(r *request, _ func()) { r.err = once() })
		}},
	{"waits for its store without a limit", "context.Background in Close",
		func(s *faulty) {
			whole := s.cuts()
			s.before(faults.OpClose, func(r *request) { <-whole.healed() })
		}},
	{"sends a create after Close", "a client library without contexts: the request goes on in a goroutine of its own, for which Close does not wait",
		on(faults.OpCreate, func(r *request, send func()) {
			if send(); r.err != nil && r.ctx.Err() != nil && r.s.Err() == nil {
				go func() {
					<-r.s.Done()
					time.Sleep(time.Millisecond)
					putStray(r.s.store, r.queue, r.spec.Prefix)
				}()
			}
		})},
	{"does not refuse a create that arrives after Close", "Redis, SQL: no look at the session in the request that makes the node",
		func(s *faulty) {
			s.late(faults.OpCreate, func(r *request) {
				if s.Err() != nil {
					putStray(s.store, r.queue, r.spec.Prefix) // this node never goes: no session owns it
				}
			})
		}},
	{"deletes at Close all nodes with its host's name", "removing nodes by prefix",
		before(faults.OpClose, func(r *request) {
			if r.s.Err() != nil {
				return
			}
			nodes, _ := r.s.List(r.ctx, "q")
			for _, n := range withPrefix(nodes, writer) {
				r.s.store.Faults().RemoveNode("q", n.Name)
			}
		})},
}

// leavesNodes ends a session in this process, but not in the store.
func (s *faulty) leavesNodes() {
	if o, known := owners.Load(s); known && s.Err() == nil {
		o.(owner).CutOff(s.base)
	}
	go func() { _ = s.base.Close() }()
	for s.Err() == nil {
		runtime.Gosched()
	}
}

var strayNode atomic.Int64

// putStray adds a node that belongs to no session, as a late Create might.
func putStray(st *memdriver.Store, queue, prefix string) (name string) {
	name = driver.FormatName(prefix, 1e9+strayNode.Add(1))
	_ = st.Faults().PutNode(queue, name, nil)
	return name
}
