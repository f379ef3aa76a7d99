package dlocktest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

var createSabotages = []sabotage{
	{"leaves the node of a create that was cancelled", "checking ctx after the request, and returning its error although the node was made",
		of(func(s base) orphans { return orphans{s} })},
	{"removes nodes of other contenders in its clean-up", "removing every node with its own host name",
		func(s base, st *memdriver.Store) driver.Session { return sweeper{s, st} }},
	{"leaves its node when the reply is lost", "returning the connection's error as it is",
		of(func(s base) *losesCreates { return &losesCreates{base: s, after: leavesIt} })},
	{"creates once more when the reply is lost", "a client library that repeats requests by itself",
		of(func(s base) *losesCreates { return &losesCreates{base: s, after: createsAgain} })},
	{"takes any node of its prefix for its own when the reply is lost", "looking for its node by host name and kind instead of by data",
		of(func(s base) *losesCreates { return &losesCreates{base: s, after: adoptsAny} })},
	{"takes any node with its data for its own when the reply is lost", "looking for its node by data, without a look at the owner",
		of(func(s base) *losesCreates { return &losesCreates{base: s, after: adoptsCopy} })},
	{"returns an error from Create although only its list failed", "two requests in one method, with one error for both",
		of(func(s base) *failsWithList { return &failsWithList{base: s} })},
	{"leaves the node of a create that arrives late", "cleaning up once, right after the error",
		of(func(s base) *cleansUpOnce { return &cleansUpOnce{base: s} })},
	{"looks for the node of a lost create by data that the caller has overwritten", "keeping the slice instead of a copy",
		func() wrap {
			lost := perStore(func() *sync.Map { return new(sync.Map) })
			return func(s base, st *memdriver.Store) driver.Session {
				return keepsSlice{&losesCreates{base: s, after: leavesIt}, lost(st)}
			}
		}()},
	{"creates nodes for a session that the store has ended", "Redis, SQL: no look at the session in the request that makes the node",
		func(s base, st *memdriver.Store) driver.Session { return &outlives{base: s, store: st} }},
}

// losesCreates is a session that loses a Create when the kit asks it to. It
// then calls after, which handles the loss wrongly.
type losesCreates struct {
	base
	after func(s base, ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error)

	mu     sync.Mutex
	losses []bool
}

func (s *losesCreates) lose(op faults.Op, committed bool) bool {
	if op != faults.OpCreate {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append(s.losses, committed)
	return true
}

func (s *losesCreates) loss() (committed, lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.losses) == 0 {
		return false, false
	}
	committed, s.losses = s.losses[0], s.losses[1:]
	return committed, true
}

func (s *losesCreates) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	committed, lost := s.loss()
	if !lost {
		return s.base.Create(ctx, queue, n)
	}
	if committed {
		if j, err := s.base.Create(ctx, queue, n); err != nil {
			return j, err
		}
	}
	return s.after(s.base, ctx, queue, n)
}

func leavesIt(base, context.Context, string, driver.NodeSpec) (driver.Joined, error) {
	return driver.Joined{}, errReset
}

func createsAgain(s base, ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	return s.Create(ctx, queue, n)
}

func adoptsAny(s base, ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	nodes, err := s.List(ctx, queue)
	mine := withPrefix(nodes, n.Prefix)
	if err != nil || len(mine) == 0 {
		return s.Create(ctx, queue, n)
	}
	last := mine[len(mine)-1]
	info, err := s.Read(ctx, queue, last.Name)
	return driver.Joined{Place: driver.Place{Node: last, Token: info.Token}}, err
}

// keepsSlice is a session that removes the nodes of lost creates before the next
// list, which it finds by their data.
type keepsSlice struct {
	*losesCreates
	lost *sync.Map // the set of *[]byte whose nodes are to be removed
}

func (s keepsSlice) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.losesCreates.Create(ctx, queue, n)
	if errors.Is(err, errReset) {
		s.lost.Store(&n.Data, true)
	}
	return j, err
}

func (s keepsSlice) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	return slices.DeleteFunc(nodes, func(n driver.Node) bool {
		info, _ := s.Read(ctx, queue, n.Name)
		found := false
		s.lost.Range(func(kept, _ any) bool {
			found = found || bytes.Equal(info.Data, *kept.(*[]byte))
			return !found
		})
		return found
	}), err
}

type orphans struct{ base }

func (s orphans) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(context.WithoutCancel(ctx), queue, n)
	time.Sleep(100 * time.Microsecond) // simulates the latency of the reply
	if ctx.Err() != nil {
		return driver.Joined{}, ctx.Err()
	}
	return j, err
}

type sweeper struct {
	base
	store *memdriver.Store
}

func (s sweeper) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if errors.Is(err, driver.ErrUnavailable) {
		nodes, _ := s.List(ctx, queue)
		for _, n := range withPrefix(nodes, n.Prefix) {
			s.store.Faults().RemoveNode(queue, n.Name)
		}
	}
	return j, err
}

func adoptsCopy(s base, ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	nodes, err := s.List(ctx, queue)
	for _, other := range nodes {
		if info, err := s.Read(ctx, queue, other.Name); err == nil && string(info.Data) == string(n.Data) {
			return driver.Joined{Place: driver.Place{Node: other, Token: info.Token}}, nil
		}
	}
	if err != nil {
		return driver.Joined{}, err
	}
	return s.Create(ctx, queue, n)
}

// failsWithList is a session whose Create, if it fails because its list was
// lost, leaves its node in the queue.
type failsWithList struct {
	base
	lost atomic.Bool
}

func (s *failsWithList) lose(op faults.Op, _ bool) bool {
	if op == faults.OpList {
		s.lost.Store(true)
	}
	return op == faults.OpList
}

func (s *failsWithList) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err == nil && s.lost.Swap(false) {
		return driver.Joined{}, errReset
	}
	return j, err
}

// cleansUpOnce is a session that tries only once to remove the node of a failed
// Create, so a delayed Create that arrives later leaves its node.
type cleansUpOnce struct {
	base
	late lateRequests
}

func (s *cleansUpOnce) holdRequest(faults.Op) (arrive func()) { return s.late.hold() }

func (s *cleansUpOnce) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if s.late.sent(func() { _, _ = s.base.Create(context.WithoutCancel(ctx), queue, n) }) {
		return driver.Joined{}, errReset
	}
	return s.base.Create(ctx, queue, n)
}

// outlives is a session that can still create nodes after the store has ended
// it.
type outlives struct {
	base
	store   *memdriver.Store
	expired atomic.Bool
}

func (s *outlives) expiring() { s.expired.Store(true) }

func (s *outlives) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err != nil && s.expired.Load() {
		_ = s.store.Faults().PutNode(queue, driver.FormatName(n.Prefix, 1000), n.Data)
	}
	return j, err
}
