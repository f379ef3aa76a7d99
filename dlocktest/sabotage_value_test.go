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

var valueSabotages = []sabotage{
	{"sets a value without looking for the node", "SQL: an upsert; Redis: SET",
		valuesBy(valueMethods{set: func(s *valueSession, _ context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.wrongly(queue, value); err != nil {
				return err
			}
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"looks for the node and sets the value in two steps", "a store without transactions, or a driver without one",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.own(ctx, queue, p, value); err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"looks for the node by its name when it sets a value", "ZooKeeper: a check of the path, in a store where names come again",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.wrongly(queue, value); err != nil {
				return err
			}
			if nodes, err := s.List(ctx, queue); err != nil || !hasName(nodes, p.Name) {
				return cmp.Or(err, driver.ErrGone)
			}
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"sets a value for the nodes of other sessions", "a condition without the session",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.wrongly(queue, value); err != nil {
				return err
			}
			if info, err := s.Read(ctx, queue, p.Name); err != nil || info.Token != p.Token {
				return cmp.Or(err, driver.ErrGone)
			}
			return s.putNewer(queue, p.Token, bytes.Clone(value))
		}})},
	{"lets an older contender overwrite what a later one has set", "an upsert without a comparison of tokens",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.own(ctx, queue, p, value); err != nil {
				return err
			}
			s.put(queue, p.Token, bytes.Clone(value))
			return nil
		}})},
	{"refuses a second SetValue of a node", "a comparison of tokens with < instead of <=",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if _, token, err := s.base.Value(ctx, queue); err == nil && token == p.Token {
				return driver.ErrStale
			}
			return s.base.SetValue(ctx, queue, p, value)
		}})},
	{"stores the value in the node", "a column of the node's row",
		valuesBy(valueMethods{get: func(s *valueSession, ctx context.Context, queue string) ([]byte, int64, error) {
			value, token, err := s.base.Value(ctx, queue)
			if nodes, _ := s.List(ctx, queue); len(nodes) == 0 {
				return nil, 0, err
			}
			return value, token, err
		}})},
	{"stores the value with its session", "etcd: a key with the lease; Redis: a key that expires",
		valuesBy(valueMethods{get: func(s *valueSession, ctx context.Context, queue string) ([]byte, int64, error) {
			value, token, err := s.base.Value(ctx, queue)
			s.mu.Lock()
			defer s.mu.Unlock()
			if by := s.setBy[token]; by != nil && by.Err() != nil {
				return nil, 0, err
			}
			return value, token, err
		}})},
	{"stores one value for a queue and those below it", "a value in the parent's node",
		valuesBy(valueMethods{name: func(queue string) string { first, _, _ := strings.Cut(queue, "/"); return first }})},
	{"stores a value under the name of another queue", "a value in the queue's node named value, next to the queue of that name",
		valuesBy(valueMethods{name: func(queue string) string { return strings.TrimSuffix(queue, "/value") }})},
	{"shows a value as a node", "a sequential child of the queue's node",
		valuesBy(valueMethods{list: func(s *valueSession, ctx context.Context, queue string) ([]driver.Node, error) {
			nodes, err := s.base.List(ctx, queue)
			if _, token, err := s.base.Value(ctx, queue); err == nil && token > 0 {
				nodes = append(nodes, driver.Node{Name: "value-0000000000"})
			}
			return nodes, err
		}})},
	{"shows the place of the values as a queue", "a queue for the values of all queues",
		valuesBy(valueMethods{walk: func(s *valueSession, ctx context.Context, prefix string) ([]string, error) {
			names, err := s.base.Walk(ctx, prefix)
			if prefix == "" && err == nil {
				names = append(names, "~kept")
			}
			return names, err
		}})},
	{"sets a value only for the name that the node had first", "a condition with the name of the place",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if nodes, err := s.List(ctx, queue); err == nil && !hasName(nodes, p.Name) {
				return driver.ErrGone
			}
			return s.base.SetValue(ctx, queue, p, value)
		}})},
	{"stores text only", "a value that ends with its first zero byte, or a column of text",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			text, _, _ := bytes.Cut(value, []byte{0})
			return s.base.SetValue(ctx, queue, p, text)
		}})},
	{"cuts a value", "MySQL: a BLOB, which has 65,535 bytes",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			return s.base.SetValue(ctx, queue, p, value[:min(len(value), driver.MaxValue-1)])
		}})},
	{"stores values of any length", "a store without a limit",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if len(value) > driver.MaxValue {
				return nil
			}
			return s.base.SetValue(ctx, queue, p, value)
		}})},
	{"stores the caller's bytes", "a value that is stored without a copy, or sent later",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.own(ctx, queue, p, value); err != nil {
				return err
			}
			return s.putNewer(queue, p.Token, value)
		}})},
	{"returns a value that it remembers", "a cache without the notices of other sessions' writes",
		valuesBy(valueMethods{get: func(s *valueSession, ctx context.Context, queue string) ([]byte, int64, error) {
			if r, ok := s.seen.Load(queue); ok {
				return r.(wrongValue).value, r.(wrongValue).token, s.Err()
			}
			value, token, err := s.base.Value(ctx, queue)
			if token > 0 {
				s.seen.Store(queue, wrongValue{value, token})
			}
			return value, token, err
		}})},
	{"sets a value without a check of the name of the queue", "a method that is written last",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			if err := s.base.SetValue(ctx, queue, p, value); !errors.Is(err, driver.ErrBadName) {
				return err
			}
			return driver.ErrGone
		}})},
	{"takes a lost answer of SetValue for a refusal", "an error of the connection that is passed on as it is",
		valuesBy(valueMethods{set: func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error {
			err := s.base.SetValue(ctx, queue, p, value)
			if errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil {
				return errPlain("connection reset by peer")
			}
			return err
		}})},
	{"tells the time of its own machine when it creates", "a clock that is nearer than the store's",
		valuesBy(valueMethods{created: func(j *driver.Joined) { j.Created = time.Now().Add(time.Minute) }})},
}

func hasName(nodes []driver.Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name })
}

// valueMethods overrides methods of a session. If a field is nil, the session uses
// the correct method.
type valueMethods struct {
	set     func(s *valueSession, ctx context.Context, queue string, p driver.Place, value []byte) error
	get     func(s *valueSession, ctx context.Context, queue string) ([]byte, int64, error)
	name    func(queue string) string // the name under which a queue's value is stored
	list    func(s *valueSession, ctx context.Context, queue string) ([]driver.Node, error)
	walk    func(s *valueSession, ctx context.Context, prefix string) ([]string, error)
	created func(j *driver.Joined)
}

// valueSession is a session with some methods replaced by
// valueMethods.
type valueSession struct {
	base
	*wrongValues
	methods valueMethods
	seen    sync.Map // what Value has returned, by queue
}

// wrongValues holds the values that sessions of one store have set through
// wrong methods.
type wrongValues struct {
	mu    sync.Mutex
	of    map[string]wrongValue
	setBy map[int64]driver.Session // by token, the session that set it
}

type wrongValue struct {
	value []byte
	token int64
}

func valuesBy(m valueMethods) wrap {
	values := perStore(func() *wrongValues {
		return &wrongValues{of: make(map[string]wrongValue), setBy: make(map[int64]driver.Session)}
	})
	return func(s base, st *memdriver.Store) driver.Session {
		return &valueSession{base: s, wrongValues: values(st), methods: m}
	}
}

func (v *wrongValues) put(queue string, token int64, value []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.of[queue] = wrongValue{value, token}
}

// putNewer stores the value unless a later contender has set one.
func (v *wrongValues) putNewer(queue string, token int64, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of[queue].token > token {
		return driver.ErrStale
	}
	v.of[queue] = wrongValue{value, token}
	return nil
}

func (v *wrongValues) wrongOf(queue string) wrongValue {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[queue]
}

// wrongly checks the arguments of a SetValue, and that the session has not ended.
func (s *valueSession) wrongly(queue string, value []byte) error {
	return errors.Join(driver.CheckQueue(queue), driver.CheckValue(value), s.Err())
}

// own returns an error unless the session's own node p is in the queue.
func (s *valueSession) own(ctx context.Context, queue string, p driver.Place, value []byte) error {
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

func (s *valueSession) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	switch {
	case s.methods.set != nil:
		return s.methods.set(s, ctx, queue, p, value)
	case s.methods.name != nil:
		if err := s.own(ctx, queue, p, value); err != nil {
			return err
		}
		return s.putNewer(s.methods.name(queue), p.Token, bytes.Clone(value))
	}
	err := s.base.SetValue(ctx, queue, p, value)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setBy[p.Token] = s
	return err
}

func (s *valueSession) Value(ctx context.Context, queue string) ([]byte, int64, error) {
	if s.methods.get != nil {
		return s.methods.get(s, ctx, queue)
	}
	value, token, err := s.base.Value(ctx, queue)
	if s.methods.name != nil {
		queue = s.methods.name(queue)
	}
	if wrong := s.wrongOf(queue); err == nil && wrong.token > 0 && wrong.token >= token {
		return wrong.value, wrong.token, nil
	}
	return value, token, err
}

func (s *valueSession) List(ctx context.Context, queue string) ([]driver.Node, error) {
	if s.methods.list != nil {
		return s.methods.list(s, ctx, queue)
	}
	return s.base.List(ctx, queue)
}

func (s *valueSession) Walk(ctx context.Context, prefix string) ([]string, error) {
	if s.methods.walk != nil {
		return s.methods.walk(s, ctx, prefix)
	}
	return s.base.Walk(ctx, prefix)
}

func (s *valueSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if s.methods.created != nil && err == nil {
		s.methods.created(&j)
	}
	return j, err
}
