package etcddriver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/castest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session/cas"
	"github.com/dlock-go/dlock/internal/etcdtest"
)

// Package cas is for stores without leases. Etcd shows that it works on a real
// store with notices.
func TestConformanceOfCompareAndSwap(t *testing.T) {
	server := etcdtest.Shared(t)
	dlocktest.Run(t, castest.Config(func(*testing.T) func() cas.KV {
		prefix := server.Prefix() + "/"
		return func() cas.KV { return &etcdKV{url: server.URL(), prefix: prefix} }
	}))
}

// etcdKV implements cas.Watcher.
type etcdKV struct {
	url, prefix string
	mu          sync.Mutex
	open        *clientv3.Client
}

var _ cas.Watcher = (*etcdKV)(nil)

func (kv *etcdKV) client() (*clientv3.Client, error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.open == nil {
		made, err := clientv3.New(clientv3.Config{Endpoints: []string{kv.url}, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		kv.open = made
	}
	return kv.open, nil
}

func (kv *etcdKV) Close() (err error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.open != nil {
		err = kv.open.Close()
		kv.open = nil
	}
	return err
}

func (kv *etcdKV) get(ctx context.Context, key string, opts ...clientv3.OpOption) (all []cas.Entry, err error) {
	c, err := kv.client()
	if err != nil {
		return nil, err
	}
	reply, err := c.Get(ctx, kv.prefix+key, opts...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	for _, pair := range reply.Kvs {
		all = append(all, kv.entry(pair))
	}
	return all, nil
}

func (kv *etcdKV) Get(ctx context.Context, key string) (cas.Entry, error) {
	all, err := kv.get(ctx, key)
	return append(all, cas.Entry{Key: key})[0], err
}

func (kv *etcdKV) Scan(ctx context.Context) ([]cas.Entry, error) {
	return kv.get(ctx, "", clientv3.WithPrefix())
}

func (kv *etcdKV) Write(ctx context.Context, e cas.Entry, guard ...cas.Entry) (int64, error) {
	c, err := kv.client()
	if err != nil {
		return 0, err
	}
	var conditions []clientv3.Cmp
	for _, o := range append(guard, e) {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(kv.prefix+o.Key), "=", o.Revision))
	}
	change := clientv3.OpPut(kv.prefix+e.Key, string(e.Value))
	if e.Value == nil {
		change = clientv3.OpDelete(kv.prefix + e.Key)
	}
	reply, err := c.Txn(ctx).If(conditions...).Then(change).Commit()
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	case !reply.Succeeded:
		return 0, cas.ErrConflict
	case e.Value == nil:
		return 0, nil
	}
	return reply.Header.Revision, nil
}

func (kv *etcdKV) Watch(ctx context.Context, prefix string, begun func(), changed func(cas.Entry)) error {
	c, err := kv.client()
	if err != nil {
		return err
	}
	for reply := range c.Watch(clientv3.WithRequireLeader(ctx), kv.prefix+prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify()) {
		if reply.Created {
			begun()
		}
		for _, e := range reply.Events {
			changed(kv.entry(e.Kv))
		}
	}
	return nil
}

// entry returns the entry of a pair, or of an event, which has no value if the
// key was removed.
func (kv *etcdKV) entry(pair *mvccpb.KeyValue) cas.Entry {
	return cas.Entry{Key: strings.TrimPrefix(string(pair.Key), kv.prefix), Value: pair.Value, Revision: pair.ModRevision}
}
