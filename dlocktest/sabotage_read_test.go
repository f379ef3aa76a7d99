package dlocktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var readSabotages = []sabotage{
	{"reads the owner from the data", "a store whose nodes have no owner of their own",
		func() wrap {
			owners := perStore(func() *sync.Map { return new(sync.Map) })
			return func(s base, st *memdriver.Store) driver.Session { return ownerByData{s, owners(st)} }
		}()},
	{"reads data that the caller has overwritten", "keeping the slice instead of a copy",
		func() wrap {
			kept := perStore(func() *sync.Map { return new(sync.Map) })
			return func(s base, st *memdriver.Store) driver.Session { return keepsData{s, kept(st)} }
		}()},
	{"takes each node for foreign", "comparing the owner with the connection instead of the session",
		of(func(s base) allForeign { return allForeign{s} })},
	{"reads the deadline of a session as what is left of it", "SQL, Redis: a column with the time since 1970",
		of(func(s base) *readsLeft {
			return &readsLeft{s, func(left time.Duration) time.Duration { return time.Duration(time.Now().UnixNano()) + left }}
		})},
	{"reads what is left of a session in the wrong unit", "seconds, milliseconds and microseconds",
		of(func(s base) *readsLeft {
			return &readsLeft{s, func(left time.Duration) time.Duration { return left / 1000 }}
		})},
	{"reads a session for a node without one", "SQL: a null taken for the default timeout",
		of(func(s base) *readsLeft {
			return &readsLeft{s, func(left time.Duration) time.Duration { return max(left, time.Millisecond) }}
		})},
	{"reads a node that is gone", "an empty answer that is not taken for an error",
		of(func(s base) readsGone { return readsGone{s} })},
}

var walkSabotages = []sabotage{
	{"walks by the letters of the prefix", "a prefix of keys taken for a path",
		of(func(s base) walksByLetters { return walksByLetters{s} })},
	{"finds nothing at a prefix that is no name of a queue", "a prefix of keys that is not checked",
		of(func(s base) walksAnyPrefix { return walksAnyPrefix{s} })},
}

type allForeign struct{ base }

func (s allForeign) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	info, err := s.base.Read(ctx, queue, name)
	info.Foreign = true
	return info, err
}

// ownerByData is a session that finds the owner of a node by the node's data,
// which another node may share.
type ownerByData struct {
	base
	owners *sync.Map
}

func (s ownerByData) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	s.owners.Store(string(n.Data), s.base.Describe().ID)
	return s.base.Create(ctx, queue, n)
}

func (s ownerByData) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	info, err := s.base.Read(ctx, queue, name)
	if owner, known := s.owners.Load(string(info.Data)); known && err == nil {
		info.Owner = owner.(string)
	}
	return info, err
}

type keepsData struct {
	base
	kept *sync.Map // data by name of the node
}

func (s keepsData) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	s.kept.Store(j.Name, n.Data)
	return j, err
}

func (s keepsData) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	info, err := s.base.Read(ctx, queue, name)
	if kept, ok := s.kept.Load(name); ok {
		info.Data = kept.([]byte)
	}
	return info, err
}

type readsGone struct{ base }

func (s readsGone) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	info, err := s.base.Read(ctx, queue, name)
	if errors.Is(err, driver.ErrGone) {
		return driver.NodeInfo{}, nil
	}
	return info, err
}

type readsLeft struct {
	base
	as func(left time.Duration) time.Duration
}

func (s *readsLeft) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	info, err := s.base.Read(ctx, queue, name)
	info.SessionLeft = s.as(info.SessionLeft)
	return info, err
}

type walksAnyPrefix struct{ base }

func (s walksAnyPrefix) Walk(ctx context.Context, prefix string) ([]string, error) {
	queues, err := s.base.Walk(ctx, prefix)
	if errors.Is(err, driver.ErrBadName) {
		return nil, nil
	}
	return queues, err
}

type walksByLetters struct{ base }

func (s walksByLetters) Walk(ctx context.Context, prefix string) ([]string, error) {
	all, err := s.base.Walk(ctx, "")
	return slices.DeleteFunc(all, func(q string) bool { return !strings.HasPrefix(q, prefix) }), err
}
