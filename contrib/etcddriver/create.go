package etcddriver

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
)

// Create creates the node and lists the nodes ahead of it in one transaction.
//
// If a proxy delivers the transaction twice, the second list contains the node
// itself, and the token is still the node's create revision.
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (j driver.Joined, err error) {
	err = s.ask(ctx, "create", queue, func(ctx context.Context) error {
		if err := driver.CheckPrefix(n.Prefix); err != nil {
			return err
		}
		number := s.take(queue)
		id, keys := nodeID(s.id, number), s.settings.queueKeys(queue)
		reply, err := s.commit(ctx,
			clientv3.OpGet(keys, clientv3.WithPrefix()),
			clientv3.OpPut(keys+id, nodeValue(n.Prefix, n.Data), clientv3.WithLease(s.id)),
		)
		if err != nil {
			s.undo(ctx, orphan{queue, number}, err)
			return err
		}
		members := parseQueue(keys, reply.Responses[0].GetResponseRange().Kvs)
		token := reply.Header.Revision // the create revision of the node's key
		if i := slices.IndexFunc(members, func(m member) bool { return m.id == id }); i >= 0 {
			token, members = members[i].Token, members[:i] // the transaction was delivered twice
		}
		s.remember(token, &ownNode{queue: queue, id: id, number: number, data: slices.Clone(n.Data)})
		ahead := nodesOf(members)
		j = driver.Joined{Place: driver.Place{Node: nodeOf(n.Prefix, token), Token: token}, Known: true, Ahead: ahead}
		j.Watch = s.watchAhead(ctx, queue, n, j, append(members, member{Place: j.Place, id: id}))
		return nil
	})
	if err != nil {
		j.Watch.Stop()
		return driver.Joined{}, err
	}
	return j, nil
}

// commit runs a transaction that must not arrive late: once reap has removed
// orphans, etcd rejects every transaction that was sent before. If that happens
// to one that still has a caller, commit sends it again.
func (s *session) commit(ctx context.Context, then ...clientv3.Op) (*clientv3.TxnResponse, error) {
	key := s.settings.cancelled(s.id)
	for {
		reply, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", s.reaped.Load())).
			Then(then...).Else(clientv3.OpGet(key)).Commit()
		if err != nil || reply.Succeeded {
			return reply, err
		}
		var latest int64
		for _, kv := range reply.Responses[0].GetResponseRange().Kvs {
			latest = kv.ModRevision
		}
		s.reaped.Store(latest)
	}
}

// watchAhead watches the node that n.Predecessor chooses among those ahead. It
// is best effort: Create succeeds even without a watch. It makes no request if
// the session already follows the queue.
func (s *session) watchAhead(
	ctx context.Context, queue string, n driver.NodeSpec, j driver.Joined, members []member,
) (w driver.Watch) {
	if n.Predecessor == nil {
		return w
	}
	i := n.Predecessor(j.Ahead)
	if i < 0 {
		return w
	}
	var f *far
	if i >= farBehind {
		f = &far{members[i].id, members[len(members)-1].id}
	}
	_ = s.following(ctx, queue, f, func(q *queueWatch, _ bool) (armed bool, err error) {
		w, armed = q.arm(j.Token, j.Place, j.Ahead[i])
		return armed, nil
	})
	return w
}

// orphan is the node of a Create that was not answered. It may appear later. Its
// number is not used again before it is reaped.
type orphan struct {
	queue  string
	number int64
}

const (
	reapedAtOnce = 127 // etcd allows 128 operations in a transaction, of which one cancels
	betweenReaps = 100 * time.Millisecond
)

// undo makes sure that a failed Create leaves no node, in the background if
// necessary.
func (s *session) undo(ctx context.Context, o orphan, err error) {
	if errors.Is(err, rpctypes.ErrNoSpace) { // may have made the node, because etcd checks the space again afterwards
		_, err = s.commit(ctx, s.deletes(o)...)
	} else if isPermanent(err) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		err = nil // etcd rejected the request
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.giveBack(o.queue, o.number)
	} else if s.orphans = append(s.orphans, o); len(s.orphans) == 1 {
		s.calls.Go(s.reap)
	}
}

// reap removes orphans, many in one transaction, until there are none. It
// pauses to gather more, because each transaction also rejects the Creates in
// flight, which are then sent again.
func (s *session) reap() {
	life, end := s.lease.Context()
	defer end()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.orphans) > 0 && life.Err() == nil {
		batch := s.orphans[:min(len(s.orphans), reapedAtOnce)]
		s.mu.Unlock()
		err := s.removeOrphans(life, batch)
		if err != nil || len(batch) < reapedAtOnce {
			s.pause(betweenReaps)
		}
		s.mu.Lock()
		if err == nil {
			s.orphans = append([]orphan(nil), s.orphans[len(batch):]...)
			for _, o := range batch {
				s.giveBack(o.queue, o.number)
			}
		}
	}
}

// removeOrphans removes the nodes, and makes etcd reject earlier transactions
// that arrive later. While etcd is out of space, it can only remove the nodes.
func (s *session) removeOrphans(ctx context.Context, batch []orphan) error {
	ctx, cancel := context.WithTimeout(ctx, s.calls.Limit)
	defer cancel()
	deletes := s.deletes(batch...)
	cancels := clientv3.OpPut(s.settings.cancelled(s.id), "", clientv3.WithLease(s.id))
	reply, err := s.commit(ctx, append(deletes, cancels)...)
	if err == nil {
		s.reaped.Store(reply.Header.Revision)
	} else if errors.Is(err, rpctypes.ErrNoSpace) {
		_, _ = s.commit(ctx, deletes...)
	}
	return err
}

func (s *session) deletes(orphans ...orphan) (ops []clientv3.Op) {
	for _, o := range orphans {
		ops = append(ops, clientv3.OpDelete(s.settings.queueKeys(o.queue)+nodeID(s.id, o.number)))
	}
	return ops
}

func (s *session) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.lease.Done():
	}
}

func (s *session) remember(token int64, n *ownNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own[token] = n
}

func (s *session) node(queue string, token int64) (*ownNode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.own[token]
	if !known || n.queue != queue {
		return nil, driver.ErrGone
	}
	return n, nil
}
