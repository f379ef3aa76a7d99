package dlocktest

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var orderSabotages = []sabotage{
	{"lists by name", "a store of keys that lists them in their own order: etcd, DynamoDB, an object store",
		of(func(s base) byName { return byName{s} })},
	{"returns an older list", "reading from a replica that lags, or from a cache",
		of(func(s base) *cached { return &cached{base: s} })},
	{"lists nodes that are no contenders", "a prefix scan that returns every key",
		of(func(s base) listsForeign { return listsForeign{s} })},
	{"draws the sequence first and shows the node later", "SQL: a sequence or AUTO_INCREMENT gives numbers in one order, transactions commit in another",
		func() wrap {
			open := perStore(func() *uncommitted { return &uncommitted{nodes: make(map[driver.Node]bool)} })
			return func(s base, st *memdriver.Store) driver.Session { return commitsLate{unknowing{s}, open(st)} }
		}()},
	{"lists the first page only", "any interface that answers in pages: DynamoDB, an object store, a LIMIT left in a statement",
		of(func(s base) onePage { return onePage{s} })},
}

// uncommitted is the set of nodes whose transactions are still open.
type uncommitted struct {
	mu    sync.Mutex
	nodes map[driver.Node]bool
}

type commitsLate struct {
	base
	open *uncommitted
}

func (s commitsLate) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	s.open.mu.Lock()
	j, err := s.base.Create(ctx, queue, n)
	s.open.nodes[j.Node] = true
	s.open.mu.Unlock()
	time.Sleep(rand.N(500 * time.Microsecond))
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	delete(s.open.nodes, j.Node)
	return j, err
}

func (s commitsLate) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	return slices.DeleteFunc(nodes, func(n driver.Node) bool { return s.open.nodes[n] }), err
}

type onePage struct{ base }

func (s onePage) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	return nodes[:min(len(nodes), 1000)], err
}

type byName struct{ base }

func (s byName) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	slices.SortFunc(nodes, func(a, b driver.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, err
}

type cached struct {
	base
	mu    sync.Mutex
	nodes []driver.Node
	age   int
}

func (s *cached) List(ctx context.Context, queue string) ([]driver.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.age++; s.age%4 == 2 {
		return s.nodes, nil
	}
	nodes, err := s.base.List(ctx, queue)
	s.nodes = nodes
	return nodes, err
}

type listsForeign struct{ base }

func (s listsForeign) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	if _, gone := s.Read(ctx, queue, "readme"); gone == nil {
		nodes = append([]driver.Node{{Name: "readme"}}, nodes...)
	}
	return nodes, err
}
