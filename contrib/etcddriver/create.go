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
// If Create gets no reply, the method cancel undoes it in the background. To
// make the transaction fail if it arrives later, cancel puts a cancellation
// key. If a proxy delivers the transaction twice, the second list contains the
// node itself, and the token is still the node's create revision.
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
		if err == nil && !reply.Succeeded {
			err = errForeignKey
		}
		if err != nil {
			s.undo(queue, number, unless, err)
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

// undo removes the node of a failed Create in the background. The number in the
// node's key is reused only if no request in flight can still create the node.
func (s *session) undo(queue string, number int64, unless string, err error) {
	if isPermanent(err) || errors.Is(err, rpctypes.ErrTooManyRequests) { // etcd rejected the request
		s.giveBack(queue, number)
		return
	}
	key := s.settings.queueKeys(queue) + nodeID(s.id, number)
	undone := func() (free bool) { return s.cancel(key, unless) }
	if errors.Is(err, rpctypes.ErrNoSpace) {
		undone = func() (free bool) { return s.withdraw(key) }
	}
	s.calls.Go(func() {
		if undone() {
			s.giveBack(queue, number)
		}
	})
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

// cancel removes the node of a Create whose outcome is unknown, retrying until
// etcd confirms. It reports whether the number in the node's key may be reused.
//
// cancel also puts a cancellation key, which makes etcd reject the Create if it
// arrives later. An attempt does nothing if the cancellation key already
// exists, because a delayed attempt could otherwise remove a later node that
// reuses the key. If etcd is out of space and rejects the cancellation key,
// cancel only removes the node.
//
// Attempts are serialized. While the store is unreachable, many Creates may
// fail, and concurrent attempts would use up the CPU.
func (s *session) cancel(key, cancelled string) (free bool) {
	for free = true; s.lease.Err() == nil; {
		err := s.tryCancel(key, cancelled)
		if err == nil {
			return free
		}
		if errors.Is(err, rpctypes.ErrNoSpace) {
			free = s.withdraw(key) && free
		}
	}
	return false
}

func (s *session) tryCancel(key, cancelled string) error {
	s.cancelling.Lock()
	defer s.cancelling.Unlock()
	err := s.attempt(func(ctx context.Context) error {
		_, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(cancelled), "=", 0)).
			Then(
				clientv3.OpDelete(key),
				clientv3.OpPut(cancelled, "", clientv3.WithLease(s.id)),
			).Commit()
		return err
	})
	if err != nil {
		s.pause(betweenTries)
	}
	return err
}

// withdraw removes the node of a Create that failed with ErrNoSpace, retrying
// until etcd confirms. The node may exist, because etcd checks the space again
// after applying the transaction.
//
// It reports whether the first attempt was confirmed. Otherwise that attempt
// may still arrive, so the number in the node's key must not be reused.
func (s *session) withdraw(key string) (free bool) {
	for free = true; s.lease.Err() == nil; free = false {
		err := s.attempt(func(ctx context.Context) error {
			_, err := s.client.Delete(ctx, key)
			return err
		})
		if err == nil {
			return free
		}
		s.pause(betweenTries)
	}
	return false
}

// betweenTries is the pause between attempts to remove the node of a failed
// Create.
const betweenTries = 100 * time.Millisecond

// attempt makes a background request, with the time limit of a foreground
// request. It returns an error if the session has ended.
func (s *session) attempt(request func(context.Context) error) error {
	ctx, leave, open := s.calls.Enter(context.Background())
	if !open {
		return errClosed
	}
	defer leave()
	if err := s.lease.Err(); err != nil {
		return err
	}
	return request(ctx)
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
