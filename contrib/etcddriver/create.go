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

// Create lists the queue and puts the node's key in one transaction. So the list holds
// the nodes that are ahead.
//
// The store refuses the transaction if its key for cancellation exists. If the
// driver gets no reply, it sends one other transaction, which puts that key and
// removes the node. This undoes the Create, whether its transaction reaches the
// store before or after the other one: see cancel.
//
// A proxy before the server may send the transaction twice. The list of the second one
// then holds the node itself. Its create revision, which is the token, is that of the
// first transaction, because a put of an existing key leaves it as it is.
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
		if err == nil && !reply.Succeeded {
			err = errForeignKey
		}
		if err != nil {
			s.undo(queue, number, unless, err)
			return err
		}
		members := parseQueue(keys, reply.Responses[0].GetResponseRange().Kvs)
		token := reply.Header.Revision // the transaction has made it, so it is the create revision
		if i := slices.IndexFunc(members, func(m member) bool { return m.id == id }); i >= 0 {
			token, members = members[i].Token, members[:i] // it was sent twice
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

// undo is called when a Create has failed. It frees the number of the node when no
// request can make the node any more.
func (s *session) undo(queue string, number int64, unless string, err error) {
	if isPermanent(err) || errors.Is(err, rpctypes.ErrTooManyRequests) { // etcd has changed nothing
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

// watchAhead returns the watch that the new node needs if the Predecessor of the
// NodeSpec chooses a node to wait for. The watch costs no request if the session
// follows the queue already. If the watch cannot be had, the Create succeeds without
// it. The last of the members is the node itself.
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

// cancel removes the node of a Create whose outcome is unknown, and makes the store
// refuse the request of that Create if it arrives later. It repeats its transaction
// until the store has confirmed it. The key for cancellation stays until the session
// ends, because until then the request may still arrive. After the end of the session
// etcd refuses the request without that key, since the lease of the node does not
// exist any more.
//
// An earlier try may arrive late, too. It must not remove the next node with the same
// key. So each try removes a node only if the key for cancellation does not exist.
//
// If the space of etcd is used up, it refuses the key for cancellation. But it removes
// the node if that is there by then.
//
// While the store is out of reach, one call of cancel makes its tries, and the others
// wait for their turn. Otherwise the tries of many failed Creates would take the time
// of the processor.
//
// At the end cancel reports whether the number of the node is free: see giveBack.
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

// tryCancel makes one try of cancel. After a failure it waits before another try may
// be made.
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

// withdraw removes the node of a Create that has got the answer ErrNoSpace. etcd has
// not made this node, or has made it: a server that finds only at the end that its
// space is used up gives the same answer. There is no later request of this Create.
// The removal needs no space. withdraw repeats it until the store has confirmed it.
//
// A try without an answer may arrive late. So withdraw reports whether the first try
// was answered, which makes the number of the node free: see giveBack.
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

// betweenTries is the pause between two tries to remove the node of a failed Create.
const betweenTries = 100 * time.Millisecond

// attempt makes a request that no caller waits for, within the time that a request may
// take. If the session has ended, it makes no request and returns an error.
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
