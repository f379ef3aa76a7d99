package etcddriver

import (
	"context"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// listener watches queues over one stream. A lost stream is not resumed,
// because events might be missing (etcd issue 15220).
type listener struct {
	b    *backend
	host session.Host

	mu       sync.Mutex
	running  bool                 // whether run is running
	queues   map[string]*followed // by queue
	byID     map[int64]*followed  // by the IDs of the open watches
	last     int64                // counter for watch IDs and followed.use
	stream   pb.Watch_WatchClient // nil while there is none
	end      func()               // closes stream
	revision int64                // newest revision received on the stream
	want     int64                // revision that the stream must reach
	asked    driver.Instant       // when want was set
}

// followed is the state of a queue's etcd watches, which end with their stream.
type followed struct {
	queue   string
	keys    []string          // if not nil, only these are watched
	ids     []int64           // IDs of the watches
	again   bool              // earlier events may have been missed
	opening int               // how many watches are not open yet
	opened  chan struct{}     // closed when all watches are open
	live    bool              // whether listed since the watches opened
	nodes   map[string]member // by the last part of the key
	early   []*mvccpb.Event   // events that arrived before live was set
	used    driver.Instant
	use     int64 // changes whenever the session uses the queue
	told    bool  // a release may have been announced
}

// A waiter whose predecessor has at least farBehind nodes ahead watches only
// that node and its own. Otherwise n waiters would receive n*n messages. The
// two watches may report out of order, so the waiter lists the queue when its
// predecessor goes.
var farBehind = 16

// farNodes has the keys to watch for a node that is far behind: see farBehind.
type farNodes struct {
	keys []string
	use  int64 // followed.use at the time of the Create
}

func (b *backend) farKeys(c session.Change, ahead []member, own string) []string {
	if c.Predecessor == nil || len(ahead) <= farBehind {
		return nil
	}
	nodes := make([]driver.Node, len(ahead))
	for i, m := range ahead {
		nodes[i] = m.Node
	}
	i := c.Predecessor(nodes)
	if i < farBehind {
		return nil
	}
	keys := b.settings.queueKeys(c.Queue)
	return []string{keys + own, keys + ahead[i].id}
}

// Start implements [session.Starter].
func (b *backend) Start(h session.Host) {
	b.listener.host = h
	h.Go(func(ctx context.Context) {
		for session.Sleep(ctx, stopAfter) {
			b.listener.stopUnused(ctx, stopAfter)
		}
	})
}

func (b *backend) Listening(queue string, whole bool) bool {
	l := b.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.queues[queue]
	return f != nil && f.live && (f.keys == nil || !whole)
}

// Subscribe implements [session.Notifier]. If the watch does not open within
// half a request timeout, the session polls instead.
func (b *backend) Subscribe(ctx context.Context, q session.Query) (now session.Snapshot, err error) {
	if q.Names == nil {
		if _, _, announced := b.listener.use(q.Queue); announced {
			return now, nil // only the changes from now on matter
		}
	}
	_, token, _ := driver.ParseName(q.Own)
	var far farNodes
	b.mu.Lock()
	if n := b.own[token]; n != nil {
		far, n.far = n.far, farNodes{}
	}
	b.mu.Unlock()
	opening, cancel := context.WithTimeout(ctx, b.settings.requestTimeout()/2)
	defer cancel()
	select {
	case <-b.listener.follow(q.Queue, far):
	case <-opening.Done():
	}
	return session.LookAt(ctx, b, q)
}

// follow watches a queue, or only far's keys while they are current. The
// returned channel is closed once the watches are open.
func (l *listener) follow(queue string, far farNodes) (opened <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.queues[queue]
	if f != nil && f.use != far.use {
		far.keys = nil
	}
	if f == nil || f.keys != nil || far.keys != nil {
		next := &followed{queue: queue, keys: far.keys, opened: make(chan struct{})}
		if f != nil {
			l.close(f)
			next.again, next.told = true, f.told
		}
		l.open(next)
		f = next
	}
	l.touch(f)
	if !l.running {
		l.running = true
		l.host.Go(l.run)
	}
	return f.opened
}

// run receives events until the session ends or no longer follows any queue.
func (l *listener) run(ctx context.Context) {
	shortest := 20 * time.Millisecond
	for pause := shortest; ; pause = min(2*pause, l.b.timeout/8) {
		began := time.Now()
		l.receive(ctx)
		if time.Since(began) > l.b.timeout/8 {
			pause = shortest
		}
		if !l.lose() || !session.Sleep(ctx, pause) {
			return
		}
	}
}

// receive passes on events until the stream ends, as it does when the server
// has no leader.
func (l *listener) receive(ctx context.Context) {
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer end()
	stream, err := pb.NewWatchClient(l.b.client.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return
	}
	l.begin(stream, end)
	for {
		reply, err := stream.Recv()
		if err != nil || !l.pass(reply) {
			return
		}
	}
}

func (l *listener) begin(stream pb.Watch_WatchClient, end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream, l.end, l.revision, l.want = stream, end, 0, 0
	for _, f := range l.queues {
		l.open(f)
	}
}

// open requests the watches of a queue. If there is no stream yet, begin calls
// open again. mu must be held.
func (l *listener) open(f *followed) {
	l.queues[f.queue] = f
	if l.stream == nil {
		return
	}
	var creates []*pb.WatchCreateRequest
	for _, key := range f.keys {
		creates = append(creates, &pb.WatchCreateRequest{Key: []byte(key)})
	}
	if f.keys == nil {
		from, keys := l.b.settings.released(f.queue), l.b.settings.queueKeys(f.queue)
		creates = append(creates, &pb.WatchCreateRequest{Key: []byte(from), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(keys))})
	}
	f.opening, f.nodes = len(creates), make(map[string]member)
	for _, c := range creates {
		l.last++
		c.WatchId = l.last
		f.ids, l.byID[l.last] = append(f.ids, l.last), f
		l.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: c}})
	}
}

// send ignores errors, because receive then fails, too. mu must be held.
func (l *listener) send(r *pb.WatchRequest) {
	if l.stream != nil {
		_ = l.stream.Send(r)
	}
}

// close closes the watches of a queue. mu must be held.
func (l *listener) close(f *followed) {
	for _, id := range f.ids {
		delete(l.byID, id)
		l.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
	}
}

// pass handles a reply. It returns false if the server ended or refused a
// watch, as with an expired authentication token.
func (l *listener) pass(reply *pb.WatchResponse) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision = max(l.revision, reply.Header.GetRevision())
	f := l.byID[reply.WatchId]
	if f == nil {
		return !reply.Created || !reply.Canceled
	}
	if reply.Created && !reply.Canceled {
		if f.opening--; f.opening == 0 {
			close(f.opened)
		}
		if f.again {
			l.host.Lost()
		}
	}
	l.apply(f, reply.Events)
	return !reply.Canceled
}

// apply passes on events. It holds them back until the first list, which may be
// older than the events.
func (l *listener) apply(f *followed, events []*mvccpb.Event) {
	if !f.live {
		f.early = append(f.early, events...)
		return
	}
	released := make(map[int64]string) // IDs of released nodes, by revision
	for _, e := range events {
		if e.Type == mvccpb.PUT && string(e.Kv.Key) == l.b.settings.released(f.queue) {
			released[e.Kv.ModRevision] = string(e.Kv.Value)
		}
	}
	keys := l.b.settings.queueKeys(f.queue)
	for _, e := range events {
		id, inQueue := strings.CutPrefix(string(e.Kv.Key), keys)
		if !inQueue {
			continue
		}
		old, was := f.nodes[id]
		was = was && old.created <= e.Kv.ModRevision // older events concern earlier nodes with this key
		var now member
		if e.Type == mvccpb.DELETE && was {
			delete(f.nodes, id)
		} else if m, ok := parseNode(keys, e.Kv); ok && e.Type == mvccpb.PUT {
			now, f.nodes[id] = m, m
		}
		switch {
		case was && e.Type == mvccpb.DELETE && released[e.Kv.ModRevision] == id:
			l.host.Gone(f.queue, old.Name, driver.Released, old.proof())
		case was && old.Name != now.Name:
			l.host.Gone(f.queue, old.Name, driver.Changed, "")
		default:
			l.host.Changed(f.queue)
		}
	}
}

// use marks a queue as used. The result use is zero while the session waits in
// the queue. announced means that every change is reported.
func (l *listener) use(queue string) (open *followed, use int64, announced bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.queues[queue]
	if f == nil {
		return nil, 0, false
	}
	l.touch(f)
	if !l.host.Watched(queue) {
		use = f.use
	}
	if f.ids == nil || f.opening > 0 {
		return nil, use, false
	}
	return f, use, f.live && f.keys == nil
}

// touch marks a queue as used. mu must be held.
func (l *listener) touch(f *followed) {
	l.last++
	f.used, f.use = driver.Now(), l.last
}

// learn adds nodes from a list requested after the watches opened. It keeps
// known nodes, because older events for them may still arrive.
func (l *listener) learn(open *followed, members []member) {
	if open == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range members {
		if _, known := open.nodes[m.id]; !known {
			open.nodes[m.id] = m
		}
	}
	if !open.live {
		open.live = true
		l.apply(open, open.early)
		open.early = nil
	}
}

// tell reports whether to announce a release. Marking the queue as used keeps
// stopUnused from removing the announcement too early.
func (l *listener) tell(queue string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.queues[queue]
	if f != nil {
		f.told = true
		l.touch(f)
	}
	return f != nil
}

// lose records that the stream was lost, and reports whether to open a new one.
func (l *listener) lose() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream = nil
	clear(l.byID)
	for queue, f := range l.queues {
		next := &followed{queue: queue, keys: f.keys, again: true, opened: f.opened, used: f.used, use: f.use, told: f.told}
		if f.ids != nil && f.opening == 0 {
			next.opened = make(chan struct{})
		}
		l.queues[queue] = next
	}
	l.host.Lost()
	l.running = len(l.queues) > 0
	return l.running
}

// check ends the stream if its server stays behind the revision newest, as with
// a hung disk. It never blocks a heartbeat.
func (l *listener) check(newest int64) {
	if !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	now := driver.Now()
	if l.revision >= l.want {
		l.want, l.asked = newest, now
	} else if now.Sub(l.asked) > l.b.timeout/4 {
		l.end()
	}
	l.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// stopAfter is how long a session keeps following a queue that it does not use.
const stopAfter = 10 * time.Second

// stopUnused stops following queues that were unused for the given time. It
// deletes the keys that announced releases there.
func (l *listener) stopUnused(ctx context.Context, after time.Duration) {
	for _, f := range l.unused(after) {
		if f.told {
			_ = l.b.ask(ctx, func(ctx context.Context) error {
				_, err := l.b.client.Delete(ctx, l.b.settings.released(f.queue))
				return err
			})
		}
	}
}

func (l *listener) unused(after time.Duration) (unused []*followed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.queues, func(queue string, f *followed) bool {
		if l.host.Watched(queue) || driver.Now().Sub(f.used) < after {
			return false
		}
		l.close(f)
		unused = append(unused, f)
		return true
	})
	if len(unused) > 0 && len(l.queues) == 0 {
		l.end()
	}
	return unused
}
