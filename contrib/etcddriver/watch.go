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

// Watch implements driver.Session. If the session follows the queue already, Watch
// lists the queue first, because events of removals may not have arrived yet. If
// the session does not follow it yet, it lists the queue when it begins to.
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

// WatchQueue implements driver.Session.
func (s *session) WatchQueue(ctx context.Context, queue string) (w driver.Watch, err error) {
	err = s.ask(ctx, "watch", queue, func(ctx context.Context) error {
		return s.following(ctx, queue, nil, func(q *queueWatch, _ bool) (armed bool, err error) {
			w, armed = q.armQueue()
			return armed, nil
		})
	})
	return w, err
}

// following finds the queueWatch of the queue, waits until it is live, and calls
// arm with it. It repeats this until arm returns true or an error. If the session
// does not follow the queue yet, following makes it do so, and tells arm by the
// argument fresh. If f is not nil, arm needs only the nodes of f.
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
		s.stream.renew() // the client library closes a stream when its last watch ends
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

// stopAfter is how long a session follows a queue after its last watch there.
const stopAfter = 10 * time.Second

// tendWatches checks now and then that the stream of the watches lives, and stops
// following queues that are not used.
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

// checkStream asks the server for a sign of life, with the revision that the stream
// has reached. It replaces the stream if no sign has come for half of the session
// timeout, or if the answer to the last check shows a revision that is older than the
// one that a heartbeat had seen by then: a follower that cannot write to its disk
// applies no changes, but it still answers.
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
	_ = s.client.RequestProgress(limited) // the next check sees a failure as silence
}

// replaceStream lets all queues be followed on another stream if the stream with that
// number is the present one. The new stream is on another connection if there is one:
// see servers.
func (s *session) replaceStream(number int64) {
	if !s.stream.number.CompareAndSwap(number, number+1) {
		return // it was replaced before
	}
	s.stream.begin()
	for _, q := range s.followed() {
		q.restart()
	}
}

// watchStream is the stream that carries all watches of a session. It begins when the
// session follows a queue and has followed none.
type watchStream struct {
	number atomic.Int64 // the number of the present stream, from 1

	mu       sync.Mutex // guards the fields below
	heard    driver.Instant
	revision int64 // the newest that the stream has shown
	asked    driver.Instant
	want     int64 // the newest that was known at asked; zero if nothing was asked
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

// hear takes note of a reply on the stream.
func (w *watchStream) hear(revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard, w.revision = driver.Now(), max(w.revision, revision)
}

// check takes note that the server is asked for its progress.
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

// behind reports whether the replies since the last check are too old.
func (w *watchStream) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision < w.want && w.heard.Sub(w.asked) > 0
}

// streamKey is the key of the metadata with the number of a stream.
const streamKey = "dlock-stream"

// onStream returns a context for watches. Watches whose contexts have the same
// metadata share a stream. The server ends the watches of a context with
// WithRequireLeader when it has lost its leader.
func onStream(ctx context.Context, number int64) context.Context {
	return clientv3.WithRequireLeader(metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(number, 10)))
}

// errStream says that a watch needs another stream. Its code tells it from the errors
// of the server and of gRPC.
var errStream = status.Error(codes.Aborted, "the stream of the watches was lost, or its token has expired")

// openOnce is an interceptor for the streams of a client. It lets the client library
// open the stream of each number only once. When a stream is lost, the library would
// open it again, and resume the watches after the last revision that a reply has named.
// But a server may answer a request for progress before it sends older events (issue
// 15220 of etcd, for example in 3.4.23), and the resumed watches would skip these. If
// openOnce refuses the stream, the library ends the watches, and the queues are listed.
type openOnce struct {
	mu     sync.Mutex
	opened int64 // the greatest number of a stream that was opened
}

func (o *openOnce) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	sent, _ := metadata.FromOutgoingContext(ctx)
	for _, number := range sent.Get(streamKey) { // only streams for watches have one
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
