package cas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// value is the value of a value's key.
type value struct {
	Token int64
	Text  []byte
}

func (s *store) value(ctx context.Context, queue string) (e Entry, v value, err error) {
	if e, err = s.kv.Get(ctx, valueKey(queue)); err == nil && e.Value != nil {
		if err = json.Unmarshal(e.Value, &v); err != nil {
			err = fmt.Errorf("key %s: %w", e.Key, err)
		}
	}
	return e, v, err
}

// setValue stores a value on the condition that neither the queue nor the value
// nor the session has changed.
func (s *store) setValue(ctx context.Context, c session.Change) error {
	for try, g := 0, s.own(); ; try++ {
		q, err := s.read(ctx, c.Queue)
		if err != nil {
			return session.Refused(err)
		}
		e, v, err := s.value(ctx, c.Queue)
		switch {
		case err != nil:
		case q.index(func(n node) bool { return s.concerns(c, n) }) < 0:
			err = driver.ErrGone
		case v.Token > c.Place.Token:
			err = driver.ErrStale
		}
		if err != nil {
			return s.unchanged(ctx, g, err)
		}
		e.Key, e.Value = valueKey(c.Queue), mustJSON(value{c.Place.Token, c.Data})
		if _, err = s.write(ctx, e, g, Entry{Key: queueKey(c.Queue), Revision: q.revision}); !errors.Is(err, ErrConflict) {
			return err
		}
		if err = s.check(ctx, g); err == nil {
			err = backOff(ctx, joinPause, try)
		}
		if err != nil {
			return session.Refused(err)
		}
	}
}

// Value implements session.Inspector.
func (s *store) Value(ctx context.Context, queue string) ([]byte, int64, error) {
	_, v, err := s.value(ctx, queue)
	return v.Text, v.Token, err
}

// Read implements session.Inspector.
func (s *store) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	q, err := s.read(ctx, queue)
	if err != nil {
		return driver.NodeInfo{}, err
	}
	i := q.index(func(n node) bool { return n.Name == name })
	if i < 0 {
		return driver.NodeInfo{}, driver.ErrGone
	}
	n := q.Nodes[i]
	return driver.NodeInfo{Token: n.Token, Data: n.Data, Owner: n.Owner}, nil
}

// Walk implements session.Inspector.
func (s *store) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	all, err := s.kv.Scan(ctx, "q/")
	for _, e := range all {
		name, ok := queueOf(e.Key)
		below := prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
		if q, err := decode(e); ok && below && err == nil && len(q.Nodes) > 0 {
			queues = append(queues, name)
		}
	}
	return queues, err
}
