package dlocktest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var tokenSabotages = []sabotage{
	{"uses the sequence as the token", "ZooKeeper: the counter of a queue is removed with the queue",
		func(s base, _ *memdriver.Store) driver.Session {
			return renumber(s, func(_ string, p driver.Place) int64 { return p.Seq })
		}},
	{"counts tokens in the process", "a counter in memory, which starts again with the process",
		func(s base, _ *memdriver.Store) driver.Session {
			var count atomic.Int64
			return renumber(s, func(string, driver.Place) int64 { return count.Add(1) })
		}},
	{"uses the time as the token", "milliseconds since 1970: two nodes may get the same one",
		func(s base, _ *memdriver.Store) driver.Session {
			return renumber(s, func(string, driver.Place) int64 { return time.Now().UnixMilli() })
		}},
	{"draws tokens in blocks, one for each session", "SQL: a sequence with a cache for each connection",
		func() wrap {
			blocks := perStore(func() *atomic.Int64 { return new(atomic.Int64) })
			return func(s base, st *memdriver.Store) driver.Session {
				var mu sync.Mutex
				var next, end int64
				return renumber(s, func(string, driver.Place) int64 {
					mu.Lock()
					defer mu.Unlock()
					if next == end {
						end = blocks(st).Add(20)
						next = end - 20
					}
					next++
					return next
				})
			}
		}()},
	{"starts its count again when a queue becomes empty", "Redis and SQL: the counter is kept with the queue and removed with the last contender",
		func() wrap {
			counts := perStore(func() *counts { return &counts{of: make(map[string]int64)} })
			return func(s base, st *memdriver.Store) driver.Session {
				return renumber(s, func(queue string, p driver.Place) int64 { return counts(st).next(queue, alone(s, queue, p)) })
			}
		}()},
}

type counts struct {
	mu sync.Mutex
	of map[string]int64
}

func (c *counts) next(queue string, anew bool) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if anew {
		c.of[queue] = 0
	}
	c.of[queue]++
	return c.of[queue]
}

// renumbered is a session that returns wrong tokens. It keeps the right ones to
// find its nodes.
type renumbered struct {
	base
	token func(queue string, p driver.Place) int64
	real  sync.Map
}

func renumber(s base, token func(queue string, p driver.Place) int64) *renumbered {
	return &renumbered{base: unknowing{s}, token: token}
}

func (s *renumbered) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err != nil {
		return j, err
	}
	s.real.Store(sequenceOf(queue, j.Node), j.Token)
	j.Token = s.token(queue, j.Place)
	return j, nil
}

func (s *renumbered) place(queue string, p driver.Place) driver.Place {
	if token, ok := s.real.Load(sequenceOf(queue, p.Node)); ok {
		p.Token = token.(int64)
	}
	return p
}

func (s *renumbered) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	return s.base.Delete(ctx, queue, s.place(queue, p), why)
}

func (s *renumbered) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	if p.Token != 0 {
		p = s.place(queue, p)
	}
	return s.base.Watch(ctx, queue, p, ahead...)
}

func alone(s base, queue string, p driver.Place) bool {
	nodes, err := s.List(context.Background(), queue)
	return err == nil && len(without(nodes, p.Node)) == 0
}

func (s *renumbered) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	now, err := s.base.Replace(ctx, queue, s.place(queue, p), prefix)
	now.Token = p.Token
	return now, err
}
