package etcddriver

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
)

// fetch lists the queue, oldest node first. It also returns the store's
// revision at that time.
func (s *session) fetch(ctx context.Context, queue string) ([]member, int64, error) {
	keys := s.settings.queueKeys(queue)
	reply, err := s.client.Get(ctx, keys, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	return parseQueue(keys, reply.Kvs), reply.Header.Revision, nil
}

// List implements [driver.Session]. Its read is linearizable.
func (s *session) List(ctx context.Context, queue string) (nodes []driver.Node, err error) {
	err = s.ask(ctx, "list", queue, func(ctx context.Context) error {
		members, _, err := s.fetch(ctx, queue)
		nodes = nodesOf(members)
		return err
	})
	return nodes, err
}

// Read implements [driver.Inspector]. Nodes of other programs have no token
// and may have no sequence. A second, best-effort request asks for the lease's
// remaining time.
func (s *session) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	err = s.ask(ctx, "read "+name, queue, func(ctx context.Context) error {
		m, _, err := s.find(ctx, queue, name)
		if err != nil {
			return err
		}
		info = s.infoOf(m, name)
		if m.session != clientv3.NoLease {
			if reply, err := s.client.TimeToLive(ctx, m.session); err == nil && reply.TTL > 0 {
				info.SessionLeft = time.Duration(reply.TTL) * time.Second
			}
		}
		return nil
	})
	return info, err
}

// find returns the node with the given name, and the revision at which the
// node's key last changed.
func (s *session) find(ctx context.Context, queue, name string) (m member, changed int64, err error) {
	keys := s.settings.queueKeys(queue)
	reply, err := s.client.Get(ctx, keys, clientv3.WithPrefix())
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

// Remove implements [driver.Inspector]. It finds the node's key and deletes it,
// unless the key has changed in between.
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	return s.ask(ctx, "remove "+p.Name, queue, func(ctx context.Context) error {
		for {
			m, changed, err := s.find(ctx, queue, p.Name)
			if err == nil && m.Token != p.Token {
				err = driver.ErrGone
			}
			if err != nil {
				return err
			}
			key := s.settings.queueKeys(queue) + m.id
			reply, err := s.client.Txn(ctx).
				If(clientv3.Compare(clientv3.ModRevision(key), "=", changed)).
				Then(clientv3.OpDelete(key)).Commit()
			if err != nil || reply.Succeeded {
				return err
			} // the node was removed or replaced in between: try again
		}
	})
}

func (s *session) infoOf(m member, name string) driver.NodeInfo {
	info := driver.NodeInfo{Node: m.Node, Token: m.Token, Data: m.data, Foreign: m.session != s.id}
	info.Name = name
	if m.session != clientv3.NoLease {
		info.Owner = sessionName(m.session)
	}
	return info
}

// Walk implements [driver.Inspector]. It reads the keys of all nodes at and below
// prefix, without their values.
func (s *session) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	from := s.settings.root()
	checked := "all" // ask requires a valid queue name
	if prefix != "" {
		from, checked = from+prefix+"/", prefix
	}
	err = s.ask(ctx, "walk", checked, func(ctx context.Context) error {
		reply, err := s.client.Get(ctx, from, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range reply.Kvs {
			if queue, ok := s.settings.queueOf(string(kv.Key)); ok {
				queues = append(queues, queue)
			}
		}
		return nil
	})
	slices.Sort(queues)
	return slices.Compact(queues), err
}

// Delete removes the node's key. If the session follows the queue and the lock
// is released, the same transaction announces the release, so that watches
// receive both at once.
//
// A session that does not follow the queue has not waited there lately, so the
// lock is probably uncontended. Delete then only removes the key. If there is a
// waiter after all, it sees driver.Changed and lists the queue.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	return s.ask(ctx, "delete "+p.Name, queue, func(ctx context.Context) error {
		n, err := s.node(queue, p.Token)
		if err != nil {
			return err
		}
		key := s.settings.queueKeys(queue) + n.id
		if why == driver.Released && s.tells(queue) {
			return s.change(ctx, n, p.Token, true, clientv3.OpDelete(key),
				clientv3.OpPut(s.settings.released(queue), n.id, clientv3.WithLease(s.id)))
		}
		return s.remove(ctx, p.Token, key)
	})
}

// tells reports whether Delete should announce a release in the queue. If so,
// tells marks the queue as used, so that the session keeps following it until
// the announcement can be removed.
func (s *session) tells(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q != nil {
		q.told = true
		q.use()
	}
	return q != nil
}

// remove deletes a node's key without checking its revision, because the check
// would cost the server time. A late request could therefore remove a later
// node with the same key, so the key is reused only after all such requests
// were answered.
func (s *session) remove(ctx context.Context, token int64, key string) error {
	s.mu.Lock()
	n := s.own[token]
	if n == nil {
		s.mu.Unlock()
		return driver.ErrGone
	}
	n.removing++
	s.mu.Unlock()
	reply, err := s.client.Delete(ctx, key)
	if err != nil {
		s.mu.Lock()
		n.removing--
		n.lost = true
		s.mu.Unlock()
		return err
	}
	s.forget(token, n, 1)
	if reply.Deleted == 0 {
		return driver.ErrGone
	}
	return nil
}

// Replace implements [driver.Session]. It overwrites the node's value and
// keeps the key, so the token does not change.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	err := s.ask(ctx, "replace "+p.Name, queue, func(ctx context.Context) error {
		if err := driver.CheckPrefix(prefix); err != nil {
			return err
		}
		n, err := s.node(queue, p.Token)
		if err != nil {
			return err
		}
		key := s.settings.queueKeys(queue) + n.id
		put := clientv3.OpPut(key, nodeValue(prefix, n.data), clientv3.WithLease(s.id))
		return s.change(ctx, n, p.Token, false, put)
	})
	if err == nil {
		p.Node = nodeOf(prefix, p.Token)
	}
	return p, err
}

// change runs a transaction if the node still exists. Otherwise it returns
// driver.ErrGone, and the session forgets the node.
func (s *session) change(ctx context.Context, n *ownNode, token int64, removes bool, then ...clientv3.Op) error {
	key := s.settings.queueKeys(n.queue) + n.id
	reply, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", token)).
		Then(then...).Commit()
	if err != nil {
		return err
	}
	if removes || !reply.Succeeded {
		s.forget(token, n, 0)
	}
	if !reply.Succeeded {
		return driver.ErrGone
	}
	return nil
}

// forget records that a node is gone. answered is the number of requests to
// remove the node that have just been answered. The node's key may be reused
// once no such request is in flight, because a late one would remove a new
// node.
func (s *session) forget(token int64, n *ownNode, answered int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.own[token]
	delete(s.own, token)
	n.removing -= answered
	if n.removing == 0 && !n.lost && (known || answered > 0) {
		s.giveBack(n.queue, n.number)
	}
}
