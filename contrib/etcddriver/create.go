package etcddriver

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
)

// Create lists the queue and puts the node's key in one transaction. So the list holds
// the nodes that are ahead.
//
// The store refuses the transaction if its key for cancellation exists. If the
// driver gets no reply, it sends one other transaction, which puts that key and
// removes the node. This undoes the Create, whether its transaction reaches the
// store before or after the other one: see cancel.
//
// Nodes of one session get the same keys again and again: see numbers.
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (j driver.Joined, err error) {
	err = s.ask(ctx, "create", queue, func(ctx context.Context) error {
		if err := driver.CheckPrefix(n.Prefix); err != nil {
			return err
		}
		number := s.take(queue)
		id, keys := nodeID(s.id, number), s.settings.queueKeys(queue)
		unless := s.settings.cancelled(s.id, s.created.Add(1))
		reply, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(unless), "=", 0)).
			Then(
				clientv3.OpGet(keys, clientv3.WithPrefix()),
				clientv3.OpPut(keys+id, nodeValue(n.Prefix, n.Data), clientv3.WithLease(s.id)),
			).Commit()
		if err != nil {
			if isPermanent(err) || isRefused(err) {
				s.giveBack(queue, number)
			} else {
				s.calls.Go(func() {
					if s.cancel(keys+id, unless) {
						s.giveBack(queue, number)
					}
				})
			}
			return err
		}
		token := reply.Header.Revision // the transaction has made it, so it is the create revision
		s.remember(token, &ownNode{queue: queue, id: id, number: number, data: slices.Clone(n.Data)})
		ahead := nodesOf(parseQueue(keys, reply.Responses[0].GetResponseRange().Kvs))
		j = driver.Joined{Place: driver.Place{Node: nodeOf(n.Prefix, token), Token: token}, Known: true, Ahead: ahead}
		j.Watch = s.watchAhead(ctx, queue, n, j)
		return nil
	})
	if err != nil {
		j.Watch.Stop()
		return driver.Joined{}, err
	}
	return j, nil
}

// watchAhead returns the watch that the new node needs if the Predecessor of the
// NodeSpec chooses a node to wait for. The watch costs no request if the session
// follows the queue already. If the watch cannot be had, the Create succeeds without
// it.
func (s *session) watchAhead(ctx context.Context, queue string, n driver.NodeSpec, j driver.Joined) (w driver.Watch) {
	if n.Predecessor == nil {
		return w
	}
	i := n.Predecessor(j.Ahead)
	if i < 0 {
		return w
	}
	_ = s.following(ctx, queue, func(q *queueWatch, _ bool) (armed bool, err error) {
		w, armed = q.arm(j.Token, j.Place, j.Ahead[i])
		return armed, nil
	})
	return w
}

// cancel removes the node of a Create whose outcome is unknown, and makes the store
// refuse the request of that Create if it arrives later. It repeats its transaction
// until the store has confirmed it, and then returns true. If the session ends before
// that, it returns false. The key for cancellation stays until the session ends,
// because until then the request may still arrive. After the end of the session etcd
// refuses the request without that key, since the lease of the node does not exist
// any more.
//
// An earlier try may arrive late, too. It must not remove the next node with the same
// key. So each try removes a node only if the key for cancellation does not exist.
func (s *session) cancel(key, cancelled string) bool {
	for s.lease.Err() == nil {
		ctx, leave, open := s.calls.Enter(context.Background())
		if !open {
			return false
		}
		_, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(cancelled), "=", 0)).
			Then(
				clientv3.OpDelete(key),
				clientv3.OpPut(cancelled, "", clientv3.WithLease(s.id)),
			).Commit()
		leave()
		if err == nil {
			return true
		}
		s.pause(100 * time.Millisecond)
	}
	return false
}

// pause waits for the given time, or until the session ends if that comes
// first.
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

// node returns the session's node with that token. The error matches driver.ErrGone
// if the node was deleted before.
func (s *session) node(queue string, token int64) (*ownNode, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, known := s.own[token]
	if !known || n.queue != queue {
		return nil, driver.ErrGone
	}
	return n, nil
}
