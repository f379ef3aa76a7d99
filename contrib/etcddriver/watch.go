package etcddriver

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/driver"
)

// Watch implements [driver.Session]. It lists the queue even if the session
// already follows it, because events for removed nodes may still be in flight.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (w driver.Watch, err error) {
	err = s.ask(ctx, "watch", queue, func(ctx context.Context) error {
		return s.following(ctx, queue, nil, func(q *queueWatch, fresh bool) (armed bool, err error) {
			if !fresh {
				if err := q.refresh(ctx); err != nil {
					return false, err
				}
			}
			w, armed = q.arm(0, p, ahead...)
			return armed, nil
		})
	})
	return w, err
}

// WatchQueue implements [driver.Session].
func (s *session) WatchQueue(ctx context.Context, queue string) (w driver.Watch, err error) {
	err = s.ask(ctx, "watch", queue, func(ctx context.Context) error {
		return s.following(ctx, queue, nil, func(q *queueWatch, _ bool) (armed bool, err error) {
			w, armed = q.armQueue()
			return armed, nil
		})
	})
	return w, err
}

// following calls arm with a live queueWatch until arm returns true or an
// error. fresh means that the session did not follow the queue before. If f is
// not nil, arm needs only the nodes in f.
func (s *session) following(
	ctx context.Context, queue string, f *far, arm func(q *queueWatch, fresh bool) (armed bool, err error),
) error {
	for {
		q, fresh, err := s.queueWatch(queue, f)
		if err != nil {
			return err
		}
		if err := q.waitLive(ctx); err != nil {
			return err
		}
		if armed, err := arm(q, fresh); armed || err != nil {
			return err
		}
	}
}

func (s *session) queueWatch(queue string, f *far) (q *queueWatch, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.queues[queue]
	if before != nil {
		var replaced bool
		if f, replaced = before.replaced(f); !replaced {
			return before, false, nil
		}
	}
	if len(s.queues) == 0 {
		s.stream.renew() // the client library closed the old stream when its last watch ended
	}
	q = newQueueWatch(s, queue, f, before)
	if !s.calls.Go(q.run) {
		q.end()
		return nil, false, errClosed
	}
	if before != nil {
		q.told, before.told = before.told, false
	}
	s.queues[queue] = q
	return q, true, nil
}

// stopAfter is how long a session keeps following a queue that it does not use.
const stopAfter = 10 * time.Second

// tendWatches periodically checks the watch stream and stops following unused
// queues.
func (s *session) tendWatches() {
	for s.lease.Err() == nil {
		s.pause(min(s.timeout/16, stopAfter))
		queues := s.followed()
		for _, q := range queues {
			q.stopIfUnused(stopAfter)
		}
		if len(queues) > 0 {
			s.checkStream()
		}
	}
}

func (s *session) followed() (queues []*queueWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		queues = append(queues, q)
	}
	return queues
}

// checkStream replaces the watch stream if its server has fallen behind. Each
// call asks the server for a progress notification and evaluates the reply to
// the previous call. If there was none, the server hangs. If the reply has an
// old revision, the server can't write to its disk.
func (s *session) checkStream() {
	stream := s.stream.number.Load()
	if s.stream.silence() > s.timeout/2 || s.stream.behind() {
		s.replaceStream(stream)
		return
	}
	ctx, leave, open := s.calls.Enter(onStream(context.Background(), stream))
	if !open {
		return
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, s.timeout/16)
	defer cancel()
	s.stream.check(s.newest.Load())
	_ = s.client.RequestProgress(limited) // the next check notices a failure
}

// replaceStream moves all watches to a new stream, at another server if
// possible. It is a no-op if the stream with the given number has already been
// replaced.
func (s *session) replaceStream(number int64) {
	if !s.stream.number.CompareAndSwap(number, number+1) {
		return
	}
	s.stream.begin()
	for _, q := range s.followed() {
		q.restart()
	}
}

// watchStream tracks the stream that carries all watches of a session. The
// first stream begins when the session starts following its first queue.
type watchStream struct {
	number atomic.Int64 // number of the current stream, starting at 1

	mu       sync.Mutex // guards the fields below
	heard    driver.Instant
	revision int64 // newest revision received on the stream
	asked    driver.Instant
	want     int64 // revision that the reply to the last check must reach, or zero
}

func (w *watchStream) renew() {
	w.number.Add(1)
	w.begin()
}

func (w *watchStream) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard, w.revision, w.want = driver.Now(), 0, 0
}

func (w *watchStream) hear(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard, w.revision = driver.Now(), max(w.revision, revision)
}

func (w *watchStream) check(newest int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked, w.want = driver.Now(), newest
}

func (w *watchStream) silence() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return driver.Now().Sub(w.heard)
}

// behind reports whether the server has replied since the last check, but only
// with outdated revisions.
func (w *watchStream) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision < w.want && w.heard.Sub(w.asked) > 0
}

const streamKey = "dlock-stream"

// onStream returns a context for watches on the given stream. The client
// library lets watches share a stream if their metadata is equal.
// WithRequireLeader makes a server that has lost its leader end its watches.
func onStream(ctx context.Context, number int64) context.Context {
	return clientv3.WithRequireLeader(metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(number, 10)))
}

// errStream means that a watch needs a new stream. It is recognized by its
// code, which neither etcd nor gRPC uses for its own errors.
var errStream = status.Error(codes.Aborted, "the stream of the watches was lost, or its token has expired")

// openOnce prevents the client library from reopening a lost stream, so that
// the watches end and the queues are listed again. The library would resume the
// watches after the last revision it received. A server may report its progress
// before it sends older events (etcd issue 15220), and a resumed watch would
// skip these.
type openOnce struct {
	mu     sync.Mutex
	opened int64 // highest stream number opened so far
}

func (o *openOnce) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	for _, number := range sent.Get(streamKey) { // set only for watches
		if !o.mayOpen(number) {
			return nil, errStream
		}
	}
	return open(ctx, desc, conn, method, opts...)
}

func (o *openOnce) mayOpen(number string) bool {
	n, _ := strconv.ParseInt(number, 10, 64)
	o.mu.Lock()
	defer o.mu.Unlock()
	if n <= o.opened {
		return false
	}
	o.opened = n
	return true
}
