package etcddriver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Read implements [session.Reader]. Nodes of other programs have no token. The
// lease's remaining time is best effort.
func (b *backend) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	err = b.ask(ctx, func(ctx context.Context) error {
		m, _, err := b.find(ctx, queue, name)
		if err != nil {
			return err
		}
		info = driver.NodeInfo{Token: m.Token, Data: m.data}
		if m.session != clientv3.NoLease {
			info.Owner = sessionName(m.session)
			if reply, err := b.client.TimeToLive(ctx, m.session); err == nil && reply.TTL > 0 {
				info.SessionLeft = time.Duration(reply.TTL) * time.Second
			}
		}
		return nil
	})
	return info, err
}

// find returns a node and the revision at which its key last changed.
func (b *backend) find(ctx context.Context, queue, name string) (m member, changed int64, err error) {
	keys := b.settings.queueKeys(queue)
	reply, err := b.client.Get(ctx, keys, clientv3.WithPrefix())
	if err != nil {
		return m, 0, err
	}
	for _, kv := range reply.Kvs {
		m, ok := parseNode(keys, kv)
		if ok && m.Name == name || !ok && m.id == name && !isNodeID(name) {
			return m, kv.ModRevision, nil
		}
	}
	return m, 0, driver.ErrGone
}

// removeAny finds and deletes the node's key, and retries if the key changed.
func (b *backend) removeAny(ctx context.Context, queue string, p driver.Place) error {
	for {
		m, changed, err := b.find(ctx, queue, p.Name)
		if err == nil && m.Token != p.Token {
			err = driver.ErrGone
		}
		if err != nil {
			return err
		}
		key := b.settings.queueKeys(queue) + m.id
		reply, err := b.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", changed)).
			Then(clientv3.OpDelete(key)).Commit()
		if err != nil || reply.Succeeded {
			return err
		}
	}
}

// Walk implements [session.Inspector]. It reads the keys of all nodes at and
// below prefix, without their values.
func (b *backend) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	from := b.settings.root()
	if prefix != "" {
		from += prefix + "/"
	}
	err = b.ask(ctx, func(ctx context.Context) error {
		reply, err := b.client.Get(ctx, from, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range reply.Kvs {
			if queue, ok := b.settings.queueOf(string(kv.Key)); ok {
				queues = append(queues, queue)
			}
		}
		return nil
	})
	return queues, err
}

// setValue writes the value if the node exists and no higher token is stored.
// The value outlives the session.
func (b *backend) setValue(ctx context.Context, n *node, c session.Change) error {
	key, token := b.settings.valueKey(c.Queue), c.Place.Token
	put := []clientv3.Op{clientv3.OpPut(key, valueToken(token)+string(c.Data))}
	newest := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "<", valueToken(token+1))}, put, nil)
	first := clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)}, put, []clientv3.Op{newest})
	reply, err := b.change(ctx, n, token, first)
	if err != nil {
		return err
	}
	outer := reply.Responses[0].GetResponseTxn()
	if !outer.Succeeded && !outer.Responses[0].GetResponseTxn().Succeeded {
		return driver.ErrStale
	}
	return nil
}

// Value implements [session.Reader]. Its read is linearizable.
func (b *backend) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	err = b.ask(ctx, func(ctx context.Context) error {
		key := b.settings.valueKey(queue)
		reply, err := b.client.Get(ctx, key)
		if err != nil || len(reply.Kvs) == 0 {
			return err
		}
		stored := reply.Kvs[0].Value
		digits := min(len(valueToken(0)), len(stored))
		if token, err = strconv.ParseInt(string(stored[:digits]), 16, 64); err != nil {
			return fmt.Errorf("the key %s was written by another program", key)
		}
		value = stored[digits:]
		return nil
	})
	return value, token, err
}
