package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

var (
	_ session.Notifier = (*backend)(nil)
	_ session.Expirer  = (*backend)(nil)
	_ session.Reader   = (*backend)(nil)
)

// backend is etcd as one session sees it. The session is an etcd lease.
type backend struct {
	*connector
	id       clientv3.LeaseID
	timeout  time.Duration    // as granted by etcd
	client   *clientv3.Client // nil after End
	beats    heartbeats
	listener *listener
	reaped   atomic.Int64 // revision of the latest Cancel, or zero

	mu      sync.Mutex
	own     map[int64]*node // nodes returned by Create, by token
	sent    map[int64]*node // nodes of unanswered Creates, by session.Change.Number
	numbers map[string]*numbers
	lost    int64 // highest number that a late request may delete
}

type node struct {
	queue  string
	number int64
	data   []byte
	far    farNodes // for the first Subscribe, which clears it

	// The fields below are guarded by backend.mu.
	uses int  // the session's own use, plus removals in flight
	lost bool // a removal without a reply may still arrive
}

func newBackend(c *connector, client *clientv3.Client, grant *clientv3.LeaseGrantResponse) *backend {
	b := &backend{
		connector: c, client: client, id: grant.ID, timeout: time.Duration(grant.TTL) * time.Second,
		beats: heartbeats{turn: make(chan struct{}, 1)},
		own:   make(map[int64]*node), sent: make(map[int64]*node), numbers: make(map[string]*numbers),
	}
	b.listener = &listener{b: b, end: func() {}, queues: make(map[string]*followed), byID: make(map[int64]*followed)}
	return b
}

// sessionName returns the lease ID as 16 hexadecimal digits.
func sessionName(id clientv3.LeaseID) string {
	digits := strconv.FormatUint(uint64(id), 16)
	return strings.Repeat("0", 16-len(digits)) + digits
}

// Begin implements [session.Store]. Connect has already created the lease.
func (b *backend) Begin(context.Context, time.Duration) (session.Begun, error) {
	return session.Begun{}, nil
}

// Expire implements [session.Expirer]: etcd itself ends expired sessions.
func (b *backend) Expire(context.Context) (bool, error) { return false, nil }

// End implements [session.Store]. If called again, it opens a new client.
func (b *backend) End(ctx context.Context) (err error) {
	if b.client == nil {
		if b.client, err = b.connector.client(ctx, b.settings.user); err != nil {
			return classify(ctx, err)
		}
	}
	for { // retry, because closeSilent may have closed the connection
		_, err = b.client.Revoke(ctx, b.id)
		if code(err) != codes.Unavailable || !session.Sleep(ctx, 50*time.Millisecond) {
			break
		}
	}
	b.client.Close()
	b.client = nil
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return classify(ctx, err)
}

func (b *backend) ask(ctx context.Context, request func(context.Context) error) error {
	limit := b.settings.requestTimeout()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := request(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer within %v", driver.ErrUnavailable, limit)
	}
	return classify(ctx, err)
}

func (b *backend) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	err = b.ask(ctx, func(ctx context.Context) (err error) {
		switch c.Kind {
		case session.Create:
			r, err = b.create(ctx, c)
		case session.Remove:
			err = b.removeAny(ctx, c.Queue, c.Place)
		default:
			err = b.changeOwn(ctx, c)
		}
		if isRefusal(err) {
			err = session.Refused(err)
		}
		return err
	})
	return r, err
}

// create makes a node and lists the nodes ahead of it, in one transaction.
func (b *backend) create(ctx context.Context, c session.Change) (r session.Result, err error) {
	f, use, announced := b.listener.use(c.Queue)
	n := b.take(c)
	id, keys := nodeID(b.id, n.number), b.settings.queueKeys(c.Queue)
	reply, err := b.commit(ctx,
		clientv3.OpGet(keys, clientv3.WithPrefix()),
		clientv3.OpPut(keys+id, nodeValue(c.Prefix, c.Data), clientv3.WithLease(b.id)),
	)
	if err != nil {
		return r, b.undo(ctx, c, err)
	}
	members := parseQueue(keys, reply.Responses[0].GetResponseRange().Kvs)
	token := reply.Header.Revision // the create revision of the node's key
	if i := slices.IndexFunc(members, func(m member) bool { return m.id == id }); i >= 0 {
		token, members = members[i].Token, members[:i] // the transaction was delivered twice
	}
	r.Place = driver.Place{Node: nodeOf(c.Prefix, token), Token: token}
	if !announced || use != 0 {
		n.far = farNodes{b.farKeys(c, members, id), use}
	}
	if announced && n.far.keys == nil {
		r.Announced = session.Every
	}
	members = append(members, member{Place: r.Place, id: id, created: token, session: b.id})
	b.listener.learn(f, members)
	r.Nodes = b.nodesOf(members)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.sent, c.Number)
	b.own[token] = n
	return r, nil
}

// commit runs a transaction that must not take effect after a later Cancel.
// Cancel rejects all pending transactions, so commit repeats those not
// cancelled.
func (b *backend) commit(ctx context.Context, then ...clientv3.Op) (*clientv3.TxnResponse, error) {
	key := b.settings.cancelled(b.id)
	for {
		reply, err := b.client.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", b.reaped.Load())).
			Then(then...).Else(clientv3.OpGet(key)).Commit()
		if err != nil || reply.Succeeded {
			return reply, err
		}
		var latest int64
		for _, kv := range reply.Responses[0].GetResponseRange().Kvs {
			latest = kv.ModRevision
		}
		b.reaped.Store(latest)
	}
}

// undo handles the error of a Create. It frees the key only if the Create
// certainly leaves no node.
func (b *backend) undo(ctx context.Context, c session.Change, err error) error {
	refused := isRefusal(err)
	if errors.Is(err, rpctypes.ErrNoSpace) { // etcd may have made the node nevertheless
		_, failed := b.commit(ctx, b.deletes(c)...)
		refused = failed == nil
	}
	if refused {
		b.giveBack(c)
		return session.Refused(err)
	}
	return err
}

// Cancel implements [session.Store]. Without space, etcd can't store the key
// that rejects late Creates, so Cancel removes the nodes and fails.
func (b *backend) Cancel(ctx context.Context, creates []session.Change) error {
	return b.ask(ctx, func(ctx context.Context) error {
		deletes := b.deletes(creates...)
		cancels := clientv3.OpPut(b.settings.cancelled(b.id), "", clientv3.WithLease(b.id))
		reply, err := b.commit(ctx, append(deletes, cancels)...)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			_, _ = b.commit(ctx, deletes...)
		}
		if err == nil {
			b.reaped.Store(reply.Header.Revision)
			b.giveBack(creates...)
		}
		return err
	})
}

func (b *backend) deletes(creates ...session.Change) (ops []clientv3.Op) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range creates {
		ops = append(ops, clientv3.OpDelete(b.key(b.sent[c.Number])))
	}
	return ops
}

func (b *backend) key(n *node) string { return b.settings.queueKeys(n.queue) + nodeID(b.id, n.number) }

func (b *backend) changeOwn(ctx context.Context, c session.Change) error {
	b.mu.Lock()
	n, token := b.own[c.Place.Token], c.Place.Token
	b.mu.Unlock()
	if n == nil || n.queue != c.Queue {
		return driver.ErrGone
	}
	key := b.key(n)
	switch {
	case c.Kind == session.SetValue:
		return b.setValue(ctx, n, c)
	case c.Kind == session.Replace:
		_, err := b.change(ctx, n, token, clientv3.OpPut(key, nodeValue(c.Prefix, n.data), clientv3.WithLease(b.id)))
		return err
	case c.Cause == driver.Released && b.listener.tell(c.Queue):
		_, err := b.change(ctx, n, token, clientv3.OpDelete(key),
			clientv3.OpPut(b.settings.released(c.Queue), nodeID(b.id, n.number), clientv3.WithLease(b.id)))
		if err == nil {
			b.forget(token, n)
		}
		return err
	}
	return b.remove(ctx, n, token)
}

func (b *backend) change(ctx context.Context, n *node, token int64, then ...clientv3.Op) (*clientv3.TxnResponse, error) {
	reply, err := b.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(b.key(n)), "=", token)).
		Then(then...).Commit()
	if err == nil && !reply.Succeeded {
		b.forget(token, n)
		err = driver.ErrGone
	}
	return reply, err
}

// remove skips the revision check to save server time. numbers keeps a late
// request from removing a later node.
func (b *backend) remove(ctx context.Context, n *node, token int64) error {
	b.mu.Lock()
	if b.own[token] != n {
		b.mu.Unlock()
		return driver.ErrGone
	}
	n.uses++
	b.mu.Unlock()
	reply, err := b.client.Delete(ctx, b.key(n))
	if err == nil {
		b.forget(token, n)
		if reply.Deleted == 0 {
			err = driver.ErrGone
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n.lost = n.lost || err != nil && !errors.Is(err, driver.ErrGone)
	b.release(n)
	return err
}

// fetch lists the queue, oldest node first, and returns the store's revision.
func (b *backend) fetch(ctx context.Context, queue string) ([]member, int64, error) {
	f, _, _ := b.listener.use(queue)
	keys := b.settings.queueKeys(queue)
	reply, err := b.client.Get(ctx, keys, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, err
	}
	members := parseQueue(keys, reply.Kvs)
	b.listener.learn(f, members)
	return members, reply.Header.Revision, nil
}

// Look implements [session.Store]. Its reads are linearizable. The version of a
// queue is the revision of the whole store.
func (b *backend) Look(ctx context.Context, ask []session.Query) (found []session.Snapshot, err error) {
	err = b.ask(ctx, func(ctx context.Context) error {
		for _, q := range ask {
			members, revision, err := b.fetch(ctx, q.Queue)
			if err != nil {
				return err
			}
			found = append(found, session.Snapshot{Nodes: b.nodesOf(members), Version: revision})
		}
		return nil
	})
	return found, err
}
