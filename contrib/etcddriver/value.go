package etcddriver

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
)

// SetValue implements [driver.Inspector]. One transaction checks that the node
// exists, compares its token with that of the stored value, and writes the new
// value. The value's key has no lease, so it outlives the session.
func (s *session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if err := driver.CheckValue(value); err != nil {
		return fmt.Errorf("etcddriver: set value: %w", err)
	}
	return s.ask(ctx, "set value", queue, func(ctx context.Context) error {
		n, err := s.node(queue, p.Token)
		if err != nil {
			return err
		}
		key := s.settings.valueKey(queue)
		put := []clientv3.Op{clientv3.OpPut(key, valueToken(p.Token)+string(value))}
		newest := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "<", valueToken(p.Token+1))}, put, nil)
		first := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}, put, []clientv3.Op{newest})
		reply, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(s.settings.queueKeys(queue)+n.id), "=", p.Token)).
			Then(first).Commit()
		switch {
		case err != nil:
			return err
		case !reply.Succeeded:
			s.forget(p.Token, n, 0)
			return driver.ErrGone
		}
		outer := reply.Responses[0].GetResponseTxn()
		if !outer.Succeeded && !outer.Responses[0].GetResponseTxn().Succeeded {
			return driver.ErrStale
		}
		return nil
	})
}

// Value implements [driver.Inspector]. Its read is linearizable.
func (s *session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	err = s.ask(ctx, "value", queue, func(ctx context.Context) error {
		reply, err := s.client.Get(ctx, s.settings.valueKey(queue))
		if err != nil || len(reply.Kvs) == 0 {
			return err
		}
		stored := reply.Kvs[0].Value
		digits := min(len(valueToken(0)), len(stored))
		if token, err = strconv.ParseInt(string(stored[:digits]), 16, 64); err != nil {
			return fmt.Errorf("the key %s was written by another program", s.settings.valueKey(queue))
		}
		value = stored[digits:]
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return value, token, nil
}
