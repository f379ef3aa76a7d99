package dlocktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var replaceSabotages = []sabotage{
	{"replaces by delete and create", "a store that has no other way, or no transactions",
		of(func(s base) twoSteps { return twoSteps{s} })},
	{"shows no node while it replaces", "deleting and creating the same sequence in two steps",
		of(func(s base) *blinks { return &blinks{base: s} })},
	{"does not find a replaced node by its old place", "a Delete that looks for the name of the place",
		of(func(s base) forgetsOld { return forgetsOld{s} })},
	{"finds a replaced node by one old place only", "SQL: a column for the name that the node had before",
		of(func(s base) *knowsTwoNames { return &knowsTwoNames{base: s, names: make(map[int64][]string)} })},
	{"gives a replaced node another token", "ZooKeeper, etcd: a node that is written anew has the number of a new transaction",
		of(func(s base) newToken { return newToken{s} })},
	{"cannot repeat a Replace", "looking for the old name only",
		of(func(s base) onceOnly { return onceOnly{s} })},
}

type newToken struct{ base }

func (s newToken) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	q, err := s.base.Replace(ctx, queue, p, prefix)
	if err == nil {
		q.Token++
	}
	return q, err
}

type onceOnly struct{ base }

func (s onceOnly) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	if _, err := s.Read(ctx, queue, p.Name); errors.Is(err, driver.ErrGone) && driver.CheckPrefix(prefix) == nil {
		return driver.Place{}, err
	}
	return s.base.Replace(ctx, queue, p, prefix)
}

type twoSteps struct{ base }

func (s twoSteps) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	if err := s.Delete(ctx, queue, p, driver.Changed); err != nil {
		return driver.Place{}, err
	}
	j, err := s.Create(ctx, queue, driver.NodeSpec{Prefix: prefix, Data: data()})
	return j.Place, err
}

type blinks struct {
	base
	replacing atomic.Bool
}

func (s *blinks) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	s.replacing.Store(true)
	defer s.replacing.Store(false)
	time.Sleep(time.Millisecond)
	return s.base.Replace(ctx, queue, p, prefix)
}

func (s *blinks) List(ctx context.Context, queue string) ([]driver.Node, error) {
	nodes, err := s.base.List(ctx, queue)
	if s.replacing.Load() && len(nodes) > 0 {
		return nodes[1:], err
	}
	return nodes, err
}

type forgetsOld struct{ base }

func (s forgetsOld) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	nodes, err := s.List(ctx, queue)
	if err == nil && !has(nodes, p.Node) {
		return driver.ErrGone
	}
	return s.base.Delete(ctx, queue, p, why)
}

// knowsTwoNames is a session that finds a node only by its current name and the
// previous one.
type knowsTwoNames struct {
	base
	mu    sync.Mutex
	names map[int64][]string // the last two names of each replaced node, by token
}

func (s *knowsTwoNames) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	q, err := s.base.Replace(ctx, queue, p, prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && q.Name != p.Name {
		s.names[p.Token] = []string{p.Name, q.Name}
	}
	return q, err
}

func (s *knowsTwoNames) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	s.mu.Lock()
	names := s.names[p.Token]
	s.mu.Unlock()
	if names != nil && !slices.Contains(names, p.Name) {
		return driver.ErrGone
	}
	return s.base.Delete(ctx, queue, p, why)
}
