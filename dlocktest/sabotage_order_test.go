package dlocktest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var orderSabotages = []sabotage{
	{"lists by name", "a store of keys that lists them in their own order: etcd, DynamoDB, an object store",
		after(faults.OpList, func(r *request) {
			slices.SortFunc(r.nodes, func(a, b driver.Node) int { return cmp.Compare(a.Name, b.Name) })
		})},
	{"returns an older list", "reading from a replica that lags, or from a cache",
		func(s *faulty) {
			var mu sync.Mutex
			var nodes []driver.Node
			age := 0
			s.on(faults.OpList, func(r *request, send func()) {
				mu.Lock()
				defer mu.Unlock()
				if age++; age%4 == 2 {
					r.nodes = nodes
					return
				}
				send()
				nodes = r.nodes
			})
		}},
	{"lists nodes that are no contenders", "a prefix scan that returns every key",
		after(faults.OpList, func(r *request) {
			if _, gone := r.s.Read(r.ctx, r.queue, "readme"); gone == nil {
				r.nodes = append([]driver.Node{{Name: "readme"}}, r.nodes...)
			}
		})},
	{"draws the sequence first and shows the node later", "SQL: a sequence or AUTO_INCREMENT gives numbers in one order, transactions commit in another",
		all(unknowing, func(s *faulty) {
			open := inStore[uncommitted](s)
			s.on(faults.OpCreate, func(r *request, send func()) {
				open.mu.Lock()
				send()
				open.nodes = append(open.nodes, r.joined.Node)
				open.mu.Unlock()
				time.Sleep(rand.N(500 * time.Microsecond))
				open.mu.Lock()
				defer open.mu.Unlock()
				open.nodes = without(open.nodes, r.joined.Node)
			})
			s.after(faults.OpList, func(r *request) {
				open.mu.Lock()
				defer open.mu.Unlock()
				r.nodes = slices.DeleteFunc(r.nodes, func(n driver.Node) bool { return has(open.nodes, n) })
			})
		})},
	{"lists the first page only", "any interface that answers in pages: DynamoDB, an object store, a LIMIT left in a statement",
		after(faults.OpList, func(r *request) { r.nodes = r.nodes[:min(len(r.nodes), 1000)] })},
}

type uncommitted struct {
	mu    sync.Mutex
	nodes []driver.Node
}
