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

// queueWatch follows one queue for all watches that the session has there. It is
// one watch of etcd, of all keys of the queue, so its events have the order of
// etcd's revisions. It keeps a copy of the queue: the nodes at the revision of the
// last event. The copy shows without a request whether the nodes of a new watch
// are in the queue.
//
// Events are missed while the watch of etcd is lost, or if etcd has compacted its
// history. Then the queue is listed, and the watches are compared with the list.
type queueWatch struct {
	s        *session
	queue    string
	keys     string      // the beginning of the keys of the queue
	released string      // the key that tells of a release
	far      *far        // nil: all keys of the queue are watched
	before   *queueWatch // what this one takes the place of, or nil
	end      context.CancelFunc
	life     context.Context
	told     bool // the session may have put the key released; session.mu protects this field

	mu       sync.Mutex
	stopped  bool // no watch may be armed here any more: the queue was not used for a while, or another queueWatch follows it
	armed    bool // a watch was armed here
	live     bool // the watch of etcd is open, and the copy was made since then
	revision int64
	nodes    map[string]driver.Place // the copy of the queue; the key is the last part of the node's key in etcd
	news     chan struct{}           // closes when one of the above changes
	used     driver.Instant
	again    context.CancelFunc // ends the present watch of etcd
}

// far names what a session watches instead of a queue if its only waiter there has
// joined far behind: the node that the waiter waits for, and the waiter's own, by the
// last parts of their keys. If each such session received all changes, a queue of n
// waiters would cost n*n messages.
//
// etcd may tell of the two nodes in any order. So the waiter is never told of a
// release: it might be told although its own node was gone before. It lists the queue
// when one of the two has changed.
type far struct {
	ahead, own string
}

// A waiter is far behind if at least farBehind nodes are before the node ahead of it.
// Tests change it.
var farBehind = 16

func newQueueWatch(s *session, queue string, f *far, before *queueWatch) *queueWatch {
	q := &queueWatch{
		far: f, before: before, s: s, queue: queue, keys: s.settings.queueKeys(queue), released: s.settings.released(queue),
		nodes: make(map[string]driver.Place), news: make(chan struct{}), used: driver.Now(), again: func() {},
	}
	q.life, q.end = s.lease.Context()
	return q
}

// run follows the queue until the session ends or the watch is unused.
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

// endBefore ends what this queueWatch takes the place of. This happens after its own
// watches of etcd are open, because the client library closes a stream when its last
// watch ends.
func (q *queueWatch) endBefore() {
	if q.before != nil {
		q.before.end()
		q.before = nil
	}
}

// clean removes the key that tells of a release. All sessions that follow the queue
// receive its changes, so they do not need the key itself. If each queue kept one, a
// session that lives long and uses many queues would have more and more keys. If the
// request fails, the key stays until the session ends.
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

// shortestPause is how long a session waits before it follows a queue again. While that
// fails, the pauses grow to an eighth of the session timeout.
const shortestPause = 20 * time.Millisecond

// begin returns the context of a watch of etcd, and the number of its stream. It holds
// mu, so that restart ends this watch if the stream is replaced meanwhile.
func (q *queueWatch) begin() (ctx context.Context, cancel context.CancelFunc, stream int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	stream = q.s.stream.number.Load()
	ctx, cancel = context.WithCancel(onStream(q.life, stream))
	q.again = cancel
	return ctx, cancel, stream
}

// follow opens a watch of etcd and handles its events until that watch is lost, or
// until ctx ends. It returns the reason if there is one.
//
// The server refuses each new watch on a stream whose token is not valid any more. A
// token expires if no watch has begun on its stream for some minutes. A request makes
// the client library log in again, but a watch does not. So if the server refuses the
// watch and not the list, follow returns errStream.
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

// watch opens the watches of etcd. The second one is nil unless the waiter is far
// behind.
func (q *queueWatch) watch(ctx context.Context) (events, own clientv3.WatchChan) {
	if q.far == nil {
		from, to := q.s.settings.watched(q.queue)
		return q.s.client.Watch(ctx, from, clientv3.WithRange(to), clientv3.WithCreatedNotify()), nil
	}
	return q.s.client.Watch(ctx, q.keys+q.far.ahead, clientv3.WithCreatedNotify()),
		q.s.client.Watch(ctx, q.keys+q.far.own, clientv3.WithCreatedNotify())
}

// update changes the copy and tells those who wait for news.
func (q *queueWatch) update(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	close(q.news)
	q.news = make(chan struct{})
}

// refresh lists the queue and compares the copy with the list. A list does not show
// why a node has gone.
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

// compare ends the watches whose nodes are not in the list, and makes the list the
// copy. The old copy does not show which nodes have gone: a watch may be armed while
// the copy is older than its nodes, and then the events that make them known may be
// missed, too.
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
	q.s.watches.Changed(q.queue) // since the last event, nodes may have joined and left again, which the list does not show
}

// apply applies events to the copy. All events of one revision are in one call.
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

// applyFar ends the watches of the nodes that have changed since the list. The
// revisions of the events need not rise.
func (q *queueWatch) applyFar(events []*clientv3.Event) {
	for _, e := range events {
		id := strings.TrimPrefix(string(e.Kv.Key), q.keys)
		if old, was := q.nodes[id]; was && e.Kv.ModRevision > q.revision {
			delete(q.nodes, id)
			q.s.watches.Gone(q.queue, old.Node, driver.Changed)
		}
	}
}

// applyOne applies the events of one revision.
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

// waitLive waits until the queue is followed, or is not to be followed any more.
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

// arm returns a watch of nodes that were in the queue at the given revision. It
// returns false if the queue is not followed any more. If the copy is older than that
// revision, the events of later removals are still to come and will end the watch.
// Otherwise the copy shows whether all these nodes are still in the queue. If one of
// them is not, arm returns a watch that has ended.
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

// use takes note that the session uses the queue now.
func (q *queueWatch) use() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used = driver.Now()
}

// stopIfUnused stops following the queue if the session has no open watch there, and
// for the given time has armed none and told of no release.
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

// replaced reports whether another queueWatch has to follow the queue for a caller that
// wants f, and then lets no more watches be armed here. The result next is what the
// other one watches: only f, if no other caller can need more. The caller holds
// session.mu.
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

// restart opens the watch of etcd again, on the present stream.
func (q *queueWatch) restart() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.again()
}
