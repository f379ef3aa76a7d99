package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Describe implements driver.Inspector.
func (s *Session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.config.ID, Server: s.config.Server(), Timeout: s.config.Timeout, Generation: s.begun.Generation, Grace: s.graced}
}

// OnHeartbeat implements driver.Inspector.
func (s *Session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.lease.OnRenew(f)
	return true
}

// Read implements driver.Inspector.
func (s *Session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	info, err := viewQueue(ctx, s, "read "+name, queue, func(ctx context.Context) (driver.NodeInfo, error) {
		return s.reader.Read(ctx, queue, name)
	})
	if err != nil {
		return driver.NodeInfo{}, err
	}
	info.Name = name
	_, info.Seq, _ = driver.ParseName(name)
	info.Foreign = info.Owner != s.config.ID
	return info, nil
}

// Walk implements driver.Inspector.
func (s *Session) Walk(ctx context.Context, prefix string) ([]string, error) {
	if prefix != "" {
		if err := driver.CheckQueue(prefix); err != nil {
			return nil, s.explain("walk", prefix, err)
		}
	}
	queues, err := view(ctx, s, "walk", prefix, func(ctx context.Context) ([]string, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.life, cancel)()
		queues, err := s.inspect.Walk(ctx, prefix)
		return queues, inTime(s.endIfGone(err))
	})
	queues = slices.DeleteFunc(queues, func(queue string) bool {
		return prefix != "" && queue != prefix && !strings.HasPrefix(queue, prefix+"/")
	})
	slices.Sort(queues)
	return slices.Compact(queues), err
}

// Value implements driver.Inspector.
func (s *Session) Value(ctx context.Context, queue string) ([]byte, int64, error) {
	type value struct {
		text  []byte
		token int64
	}
	v, err := viewQueue(ctx, s, "value", queue, func(ctx context.Context) (v value, err error) {
		v.text, v.token, err = s.reader.Value(ctx, queue)
		return v, err
	})
	if err != nil || v.token == 0 {
		return nil, 0, err
	}
	return v.text, v.token, nil
}

// looker is the Reader of a store whose Look also returns owners, data and
// values.
type looker struct {
	Inspector
	store Store
}

func (l looker) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	now, err := LookAt(ctx, l.store, Query{Queue: queue})
	for _, n := range now.Nodes {
		if n.Name == name {
			return driver.NodeInfo{Token: n.Token, Data: n.Data, Owner: n.Owner}, nil
		}
	}
	return driver.NodeInfo{}, cmp.Or(err, driver.ErrGone)
}

func (l looker) Value(ctx context.Context, queue string) ([]byte, int64, error) {
	now, err := LookAt(ctx, l.store, Query{Queue: queue})
	return now.Value, now.ValueToken, err
}

func viewQueue[T any](ctx context.Context, s *Session, what, queue string, f func(context.Context) (T, error)) (v T, err error) {
	if err := driver.CheckQueue(queue); err != nil {
		return v, s.explain(what, queue, err)
	}
	return view(ctx, s, what, queue, func(ctx context.Context) (v T, err error) {
		err = s.ask(ctx, func(ctx context.Context) error {
			v, err = f(ctx)
			return err
		})
		return v, err
	})
}

func view[T any](ctx context.Context, s *Session, what, queue string, f func(context.Context) (T, error)) (v T, err error) {
	if s.inspect == nil {
		return v, errors.ErrUnsupported
	}
	v, err = call(ctx, s, f, drop)
	return v, s.explain(what, queue, err)
}

// Check implements driver.Checker for a connector. It connects, and returns
// what the function check finds in the session's store. If Connect fails, and
// the function advise has advice for the error, the error is the only finding.
func Check(ctx context.Context, c driver.Connector, advise func(error) string, check func(Store) []driver.Finding) ([]driver.Finding, error) {
	s, err := c.Connect(ctx)
	if advice := advise(err); advice != "" {
		return []driver.Finding{{Level: driver.Problem, Text: err.Error(), Advice: advice}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return check(s.(*Session).Store()), ctx.Err()
}

// Remove implements driver.Inspector.
func (s *Session) Remove(ctx context.Context, queue string, p driver.Place) error {
	return s.operate(ctx, "remove "+p.Name, Change{Kind: Remove, Queue: queue, Place: p})
}

// SetValue implements driver.Inspector.
func (s *Session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if err := driver.CheckValue(value); err != nil {
		return s.explain("set value", queue, err)
	}
	c := Change{Kind: SetValue, Queue: queue, Place: p, Data: append([]byte{}, value...)} // not nil, which would mean no value
	return s.operate(ctx, "set value", c)
}

func (s *Session) operate(ctx context.Context, what string, c Change) error {
	if s.inspect == nil {
		return errors.ErrUnsupported
	}
	_, err := s.change(ctx, what, c, func(ctx context.Context) (Result, error) {
		r, err := s.do(ctx, c)
		if err == nil && c.Kind == Remove {
			s.left(c, r)
		}
		return r, err
	})
	return err
}
