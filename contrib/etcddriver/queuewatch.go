package etcddriver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// queueWatch follows a queue on behalf of all watches that the session has in
// it. It sees changes in the order of etcd's revisions and maintains a copy of
// the queue, so that arming another watch needs no request.
//
// If the etcd watch is interrupted, events may be missing. The queueWatch then
// lists the queue and ends the watches of nodes that are gone.
type queueWatch struct {
	s        *session
	queue    string
	keys     string
	released string      // key that announces a release
	far      *far        // nil if all keys of the queue are watched
	before   *queueWatch // the queueWatch that this one replaces, or nil
	end      context.CancelFunc
	life     context.Context
	told     bool // Delete may have put the key released; guarded by session.mu

	mu       sync.Mutex
	stopped  bool // no further watch may be armed
	armed    bool // at least one watch has been armed
	live     bool // the etcd watch is open and nodes is up to date
	revision int64
	nodes    map[string]driver.Place // copy of the queue, by the last part of the key
	news     chan struct{}           // closed and replaced at each change of the fields above
	used     driver.Instant
	again    context.CancelFunc // restarts the etcd watch
}

// far restricts a queueWatch to a waiter's own node and the node ahead of it.
// It is used when the session's only waiter is far back in the queue, because
// sending every change to each of n waiters takes n*n messages.
//
// The two etcd watches are not ordered with respect to each other. The session
// therefore never reports a release, because the waiter's own node might have
// been removed earlier. The waiter lists the queue instead.
type far struct {
	ahead, own string
}

// farBehind is how many nodes must be ahead of a waiter before it watches only
// its own node and one other. It is a variable so that tests can change it.
var farBehind = 16

func newQueueWatch(s *session, queue string, f *far, before *queueWatch) *queueWatch {
	q := &queueWatch{
		far: f, before: before, s: s, queue: queue, keys: s.settings.queueKeys(queue), released: s.settings.released(queue),
		nodes: make(map[string]driver.Place), news: make(chan struct{}), used: driver.Now(), again: func() {},
	}
	q.life, q.end = s.lease.Context()
	return q
}

func (q *queueWatch) run() {
	defer q.end()
	defer q.endBefore()
	for pause := shortestPause; q.life.Err() == nil; pause = min(2*pause, q.s.timeout/8) {
		ctx, cancel, stream := q.begin()
		err := q.follow(ctx)
		cancel()
		q.update(func() {
			if q.live {
				pause = shortestPause
			}
			q.live = false
		})
		if code(err) == code(errStream) {
			q.s.replaceStream(stream)
		}
		if q.life.Err() == nil {
			q.s.pause(pause)
		}
	}
	q.clean()
}

// endBefore ends the queueWatch that this one replaces. Call it only once the
// new etcd watches are open, because the client library closes a stream
// together with its last watch.
func (q *queueWatch) endBefore() {
	if q.before != nil {
		q.before.end()
		q.before = nil
	}
}

// clean removes the key that announces a release, so that a session that uses
// many queues does not accumulate keys. It is best effort, because etcd removes
// the key anyway when the session ends.
func (q *queueWatch) clean() {
	q.s.mu.Lock()
	told := q.told
	q.s.mu.Unlock()
	ctx, leave, open := q.s.calls.Enter(context.Background())
	if !open {
		return
	}
	defer leave()
	if told && q.s.lease.Err() == nil {
		_, _ = q.s.client.Delete(ctx, q.released)
	}
}

// shortestPause is the pause after the first failure to follow a queue. After
// repeated failures, pauses grow to an eighth of the session timeout.
const shortestPause = 20 * time.Millisecond

// begin returns the context for a new etcd watch and the number of the stream
// to open it on. It holds mu, so that a concurrent restart cancels the returned
// context.
func (q *queueWatch) begin() (ctx context.Context, cancel context.CancelFunc, stream int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	stream = q.s.stream.number.Load()
	ctx, cancel = context.WithCancel(onStream(q.life, stream))
	q.again = cancel
	return ctx, cancel, stream
}

// follow opens an etcd watch and applies its events until the watch is lost or
// ctx ends. It returns the reason, if known.
//
// It returns errStream if the server rejects the watch but accepts the list.
// The stream's authentication token has then expired, so the server would
// reject every other watch on this stream.
func (q *queueWatch) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slow := time.AfterFunc(q.s.settings.requestTimeout(), cancel)
	events, own := q.watch(ctx)
	first, open := <-events
	refused := first.Err()
	if own != nil && open && refused == nil {
		first, open = <-own
		refused = first.Err()
	}
	if !slow.Stop() || code(refused) == code(errStream) {
		return refused
	}
	q.s.stream.hear(first.Header.Revision)
	limited, stop := context.WithTimeout(ctx, q.s.settings.requestTimeout())
	err := q.refresh(limited)
	stop()
	if err != nil {
		return err
	}
	if !open || refused != nil {
		return errStream
	}
	q.update(func() { q.live = true })
	q.endBefore()
	for {
		var reply clientv3.WatchResponse
		select {
		case reply, open = <-events:
		case reply, open = <-own:
		}
		if !open || reply.Err() != nil {
			return reply.Err()
		}
		q.s.stream.hear(reply.Header.Revision)
		q.update(func() { q.apply(reply.Events) })
	}
}

// watch opens the etcd watches. own is nil unless the waiter is far back in the
// queue.
func (q *queueWatch) watch(ctx context.Context) (events, own clientv3.WatchChan) {
	if q.far == nil {
		from, to := q.s.settings.watched(q.queue)
		return q.s.client.Watch(ctx, from, clientv3.WithRange(to), clientv3.WithCreatedNotify()), nil
	}
	return q.s.client.Watch(ctx, q.keys+q.far.ahead, clientv3.WithCreatedNotify()),
		q.s.client.Watch(ctx, q.keys+q.far.own, clientv3.WithCreatedNotify())
}

func (q *queueWatch) update(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	close(q.news)
	q.news = make(chan struct{})
}

// refresh updates the copy by listing the queue. Nodes that are missing in the
// list are reported as driver.Changed, because the list does not show why they
// are gone.
func (q *queueWatch) refresh(ctx context.Context) error {
	members, revision, err := q.s.fetch(ctx, q.queue)
	if err != nil {
		return err
	}
	q.update(func() {
		if revision > q.revision {
			q.compare(members)
			q.revision = revision
		}
	})
	return nil
}

// compare replaces the copy with a newly listed queue, and ends the watches of
// nodes that are not in the list. It compares the list with the watched names
// rather than with the old copy, which may lack nodes because of missed events.
func (q *queueWatch) compare(members []member) {
	listed, names := make(map[string]driver.Place, len(members)), make(map[string]bool, len(members))
	for _, m := range members {
		listed[m.id], names[m.Name] = m.Place, true
	}
	for _, name := range q.s.watches.Names(q.queue) {
		if !names[name] {
			q.s.watches.Gone(q.queue, driver.Node{Name: name}, driver.Changed)
		}
	}
	q.nodes = listed
	q.s.watches.Changed(q.queue) // nodes may have come and gone unnoticed since the last event
}

// apply applies events to the copy of the queue. Events of the same revision
// must be passed in the same call.
func (q *queueWatch) apply(events []*clientv3.Event) {
	if q.far != nil {
		q.applyFar(events)
		return
	}
	for len(events) > 0 {
		revision := events[0].Kv.ModRevision
		n := slices.IndexFunc(events, func(e *clientv3.Event) bool { return e.Kv.ModRevision != revision })
		if n < 0 {
			n = len(events)
		}
		if revision > q.revision {
			q.applyOne(events[:n])
			q.revision = revision
		}
		events = events[n:]
	}
}

// applyFar ends the watches of nodes that have changed since the queue was
// listed. The events come from two etcd watches, so they may be out of order.
func (q *queueWatch) applyFar(events []*clientv3.Event) {
	for _, e := range events {
		id := strings.TrimPrefix(string(e.Kv.Key), q.keys)
		if old, was := q.nodes[id]; was && e.Kv.ModRevision > q.revision {
			delete(q.nodes, id)
			q.s.watches.Gone(q.queue, old.Node, driver.Changed)
		}
	}
}

func (q *queueWatch) applyOne(events []*clientv3.Event) {
	var releasedID string
	for _, e := range events {
		if e.Type == mvccpb.PUT && string(e.Kv.Key) == q.released {
			releasedID = string(e.Kv.Value)
		}
	}
	for _, e := range events {
		id, inQueue := strings.CutPrefix(string(e.Kv.Key), q.keys)
		if !inQueue {
			continue
		}
		m, isNode := member{}, false
		if e.Type == mvccpb.PUT {
			m, isNode = parseNode(q.keys, e.Kv)
		}
		old, was := q.nodes[id]
		if isNode {
			q.nodes[id] = m.Place
		} else {
			delete(q.nodes, id)
		}
		switch {
		case was && e.Type == mvccpb.DELETE && id == releasedID:
			q.s.watches.Gone(q.queue, old.Node, driver.Released)
		case was && old != m.Place:
			q.s.watches.Gone(q.queue, old.Node, driver.Changed)
		case isNode && !was:
			q.s.watches.Changed(q.queue)
		}
	}
}

func (q *queueWatch) waitLive(ctx context.Context) error {
	for {
		q.mu.Lock()
		ready, news := q.stopped || q.live, q.news
		q.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		case <-q.life.Done():
			return errors.New("etcddriver: the watch of the queue has ended")
		}
	}
}

// arm returns a watch of nodes that were in the queue at the given revision, or
// false if q is stopped. If one of the nodes is already gone, the returned
// watch has ended.
func (q *queueWatch) arm(revision int64, p driver.Place, ahead ...driver.Node) (driver.Watch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return driver.Watch{}, false
	}
	q.used = driver.Now()
	q.armed = true
	missing := func(n driver.Node) bool { return !q.has(n.Name, 0) }
	if q.revision >= revision && (!q.has(p.Name, p.Token) || slices.ContainsFunc(ahead, missing)) {
		return watches.Ended(), true
	}
	return q.s.watches.Arm(q.queue, p, ahead...), true
}

func (q *queueWatch) has(name string, token int64) bool {
	for _, p := range q.nodes {
		if p.Name == name && (token == 0 || token == p.Token) {
			return true
		}
	}
	return false
}

func (q *queueWatch) armQueue() (driver.Watch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return driver.Watch{}, false
	}
	q.used, q.armed = driver.Now(), true
	return q.s.watches.ArmQueue(q.queue, nil), true
}

func (q *queueWatch) use() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used = driver.Now()
}

// stopIfUnused stops following the queue if it has no open watch and has not
// been used for the given time.
func (q *queueWatch) stopIfUnused(after time.Duration) {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped || q.s.watches.Has(q.queue) || driver.Now().Sub(q.used) < after {
		return
	}
	q.stopped = true
	delete(q.s.queues, q.queue)
	q.end()
}

// replaced reports whether a new queueWatch must replace q for a caller that
// watches the nodes in f, or all nodes if f is nil. If so, it stops q. The new
// queueWatch must cover next, which is f, or nil if other callers may need all
// nodes. session.mu must be held.
func (q *queueWatch) replaced(f *far) (next *far, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.armed || q.s.watches.Has(q.queue) {
		f = nil
	}
	if q.far == nil && f == nil {
		return nil, false
	}
	q.stopped = true
	return f, true
}

// restart reopens the etcd watch on the session's current stream.
func (q *queueWatch) restart() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.again()
}
