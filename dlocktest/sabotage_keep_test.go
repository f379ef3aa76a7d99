package dlocktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var keepSabotages = []sabotage{
	{"keeps without looking for the node", "SQL: an upsert; Redis: SET",
		keeping(keeper{keep: func(s *keeperSession, _ context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.wrongly(queue, value); err != nil {
				return err
			}
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"looks for the node and keeps in two steps", "a store without transactions, or a driver without one",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.own(ctx, queue, p, value); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"looks for the node by its name when it keeps", "ZooKeeper: a check of the path, in a store where names come again",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.wrongly(queue, value); err != nil {
				return err
			}
			if nodes, err := s.List(ctx, queue); err != nil || !hasName(nodes, p.Name) {
				return cmp.Or(err, driver.ErrGone)
			}
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"keeps for the nodes of other sessions", "a condition without the session",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.wrongly(queue, value); err != nil {
				return err
			}
			if info, err := s.Read(ctx, queue, p.Name); err != nil || info.Token != p.Token {
				return cmp.Or(err, driver.ErrGone)
			}
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"lets an older contender overwrite what a later one has kept", "an upsert without a comparison of tokens",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.own(ctx, queue, p, value); err != nil {
				return err
			}
			s.put(queue, p.Token, bytes.Clone(value))
			return nil
		}})},
	{"refuses a second Keep of a node", "a comparison of tokens with < instead of <=",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if _, token, err := s.base.Kept(ctx, queue); err == nil && token == p.Token {
				return driver.ErrStale
			}
			return s.base.Keep(ctx, queue, p, value)
		}})},
	{"keeps the value in the node", "a column of the node's row",
		keeping(keeper{kept: func(s *keeperSession, ctx context.Context, queue string) ([]byte, int64, error) {
			value, token, err := s.base.Kept(ctx, queue)
			if nodes, _ := s.List(ctx, queue); len(nodes) == 0 {
				return nil, 0, err
			}
			return value, token, err
		}})},
	{"keeps the value with its session", "etcd: a key with the lease; Redis: a key that expires",
		keeping(keeper{kept: func(s *keeperSession, ctx context.Context, queue string) ([]byte, int64, error) {
			value, token, err := s.base.Kept(ctx, queue)
			s.mu.Lock()
			defer s.mu.Unlock()
			if by := s.keptFor[token]; by != nil && by.Err() != nil {
				return nil, 0, err
			}
			return value, token, err
		}})},
	{"keeps one value for a queue and those below it", "a value in the parent's node",
		keeping(keeper{name: func(queue string) string { first, _, _ := strings.Cut(queue, "/"); return first }})},
	{"keeps a value under the name of another queue", "a value in the queue's node named value, next to the queue of that name",
		keeping(keeper{name: func(queue string) string { return strings.TrimSuffix(queue, "/value") }})},
	{"shows a kept value as a node", "a sequential child of the queue's node",
		keeping(keeper{list: func(s *keeperSession, ctx context.Context, queue string) ([]driver.Node, error) {
			nodes, err := s.base.List(ctx, queue)
			if _, token, kept := s.base.Kept(ctx, queue); kept == nil && token > 0 {
				nodes = append(nodes, driver.Node{Name: "value-0000000000"})
			}
			return nodes, err
		}})},
	{"shows the place of the values as a queue", "a queue for the values of all queues",
		keeping(keeper{walk: func(s *keeperSession, ctx context.Context, prefix string) ([]string, error) {
			names, err := s.base.Walk(ctx, prefix)
			if prefix == "" && err == nil {
				names = append(names, "~kept")
			}
			return names, err
		}})},
	{"keeps only for the name that the node had first", "a condition with the name of the place",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if nodes, err := s.List(ctx, queue); err == nil && !hasName(nodes, p.Name) {
				return driver.ErrGone
			}
			return s.base.Keep(ctx, queue, p, value)
		}})},
	{"keeps text only", "a value that ends with its first zero byte, or a column of text",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			text, _, _ := bytes.Cut(value, []byte{0})
			return s.base.Keep(ctx, queue, p, text)
		}})},
	{"cuts a kept value", "MySQL: a BLOB, which has 65,535 bytes",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			return s.base.Keep(ctx, queue, p, value[:min(len(value), driver.MaxValue-1)])
		}})},
	{"keeps values of any length", "a store without a limit",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if len(value) > driver.MaxValue {
				return nil
			}
			return s.base.Keep(ctx, queue, p, value)
		}})},
	{"keeps the caller's bytes", "a value that is stored without a copy, or sent later",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.own(ctx, queue, p, value); err != nil {
				return err
			}
			return s.putNewer(queue, p.Token, value)
		}})},
	{"returns a kept value that it remembers", "a cache without the notices of other sessions' writes",
		keeping(keeper{kept: func(s *keeperSession, ctx context.Context, queue string) ([]byte, int64, error) {
			if r, ok := s.seen.Load(queue); ok {
				return r.(keptValue).value, r.(keptValue).token, s.Err()
			}
			value, token, err := s.base.Kept(ctx, queue)
			if token > 0 {
				s.seen.Store(queue, keptValue{value, token})
			}
			return value, token, err
		}})},
	{"keeps without a check of the name of the queue", "a method that is written last",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.base.Keep(ctx, queue, p, value); !errors.Is(err, driver.ErrBadName) {
				return err
			}
			return driver.ErrGone
		}})},
	{"takes a lost answer of Keep for a refusal", "an error of the connection that is passed on as it is",
		keeping(keeper{keep: func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			err := s.base.Keep(ctx, queue, p, value)
			if errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil {
				return errPlain("connection reset by peer")
			}
			return err
		}})},
	{"tells the time of its own machine when it creates", "a clock that is nearer than the store's",
		keeping(keeper{created: func(j *driver.Joined) { j.Created = time.Now().Add(time.Minute) }})},
}

func hasName(nodes []driver.Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name })
}

// keeper overrides methods of a session. If a field is nil, the session uses
// the correct method.
type keeper struct {
	keep    func(s *keeperSession, ctx context.Context, queue string, p driver.Place, value []byte) error
	kept    func(s *keeperSession, ctx context.Context, queue string) ([]byte, int64, error)
	name    func(queue string) string // the name under which a queue's value is stored
	list    func(s *keeperSession, ctx context.Context, queue string) ([]driver.Node, error)
	walk    func(s *keeperSession, ctx context.Context, prefix string) ([]string, error)
	created func(j *driver.Joined)
}

// keeperSession is a session with some methods replaced by those of a keeper.
type keeperSession struct {
	base
	*keptValues
	keeper keeper
	seen   sync.Map // what Kept has returned, by queue
}

// keptValues holds the values that sessions of one store have kept through
// wrong methods.
type keptValues struct {
	mu      sync.Mutex
	of      map[string]keptValue
	keptFor map[int64]driver.Session // by token, the session that kept a value
}

type keptValue struct {
	value []byte
	token int64
}

func keeping(k keeper) wrap {
	values := perStore(func() *keptValues {
		return &keptValues{of: make(map[string]keptValue), keptFor: make(map[int64]driver.Session)}
	})
	return func(s base, st *memdriver.Store) driver.Session {
		return &keeperSession{base: s, keptValues: values(st), keeper: k}
	}
}

func (v *keptValues) put(queue string, token int64, value []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[queue] = keptValue{value, token}
}

// putNewer stores the value unless a later contender has kept one.
func (v *keptValues) putNewer(queue string, token int64, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of[queue].token > token {
		return driver.ErrStale
	}
	v.of[queue] = keptValue{value, token}
	return nil
}

func (v *keptValues) get(queue string) keptValue {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[queue]
}

// wrongly checks the arguments of a Keep, and that the session has not ended.
func (s *keeperSession) wrongly(queue string, value []byte) error {
	return errors.Join(driver.CheckQueue(queue), driver.CheckValue(value), s.Err())
}

// own returns an error unless the session's own node p is in the queue.
func (s *keeperSession) own(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if err := s.wrongly(queue, value); err != nil {
		return err
	}
	nodes, err := s.base.List(ctx, queue)
	for _, n := range nodes {
		if info, err := s.base.Read(ctx, queue, n.Name); err == nil && info.Token == p.Token && !info.Foreign {
			return nil
		}
	}
	return cmp.Or(err, driver.ErrGone)
}

func (s *keeperSession) Keep(ctx context.Context, queue string, p driver.Place, value []byte) error {
	switch {
	case s.keeper.keep != nil:
		return s.keeper.keep(s, ctx, queue, p, value)
	case s.keeper.name != nil:
		if err := s.own(ctx, queue, p, value); err != nil {
			return err
		}
		return s.putNewer(s.keeper.name(queue), p.Token, bytes.Clone(value))
	}
	err := s.base.Keep(ctx, queue, p, value)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keptFor[p.Token] = s
	return err
}

func (s *keeperSession) Kept(ctx context.Context, queue string) ([]byte, int64, error) {
	if s.keeper.kept != nil {
		return s.keeper.kept(s, ctx, queue)
	}
	value, token, err := s.base.Kept(ctx, queue)
	if s.keeper.name != nil {
		queue = s.keeper.name(queue)
	}
	if wrong := s.get(queue); err == nil && wrong.token > 0 && wrong.token >= token {
		return wrong.value, wrong.token, nil
	}
	return value, token, err
}

func (s *keeperSession) List(ctx context.Context, queue string) ([]driver.Node, error) {
	if s.keeper.list != nil {
		return s.keeper.list(s, ctx, queue)
	}
	return s.base.List(ctx, queue)
}

func (s *keeperSession) Walk(ctx context.Context, prefix string) ([]string, error) {
	if s.keeper.walk != nil {
		return s.keeper.walk(s, ctx, prefix)
	}
	return s.base.Walk(ctx, prefix)
}

func (s *keeperSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if s.keeper.created != nil && err == nil {
		s.keeper.created(&j)
	}
	return j, err
}
