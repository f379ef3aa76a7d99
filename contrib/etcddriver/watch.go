package etcddriver

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/dlock-go/dlock/driver"
)

// Watch implements driver.Session. If the session follows the queue already, Watch
// lists the queue first, because events of removals may not have arrived yet. If
// the session does not follow it yet, it lists the queue when it begins to.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (w driver.Watch, err error) {
	err = s.ask(ctx, "watch", queue, func(ctx context.Context) error {
		return s.following(ctx, queue, func(q *queueWatch, fresh bool) (armed bool, err error) {
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
		return s.following(ctx, queue, func(q *queueWatch, _ bool) (armed bool, err error) {
			w, armed = q.armQueue()
			return armed, nil
		})
	})
	return w, err
}

// following finds the queueWatch of the queue, waits until it is live, and calls
// arm with it. It repeats this until arm returns true or an error. If the session
// does not follow the queue yet, following makes it do so, and tells arm by the
// argument fresh.
func (s *session) following(ctx context.Context, queue string, arm func(q *queueWatch, fresh bool) (armed bool, err error)) error {
	for {
		q, fresh, err := s.queueWatch(queue)
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

func (s *session) queueWatch(queue string) (q *queueWatch, fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q = s.queues[queue]; q != nil {
		return q, false, nil
	}
	q = newQueueWatch(s, queue)
	if !s.calls.Go(q.run) {
		q.end()
		return nil, false, errClosed
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
		s.pause(s.timeout / 8)
		queues := s.followed()
		for _, q := range queues {
			q.stopIfUnused(stopAfter)
		}
		if len(queues) > 0 {
			s.checkStream(queues)
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

// checkStream asks the server for a sign of life. If none has come for half of the
// session timeout, all queues are followed on another stream, which the client
// library opens on another connection if it has one.
func (s *session) checkStream(queues []*queueWatch) {
	if s.stream.silence() > s.timeout/2 {
		s.stream.init()
		for _, q := range queues {
			q.restart()
		}
		return
	}
	ctx, leave, open := s.calls.Enter(s.stream.context(context.Background()))
	if !open {
		return
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, s.timeout/8)
	defer cancel()
	_ = s.client.RequestProgress(limited) // the next check sees a failure as silence
}

// watchStream is the stream that carries all watches of a session.
type watchStream struct {
	number atomic.Int64 // the number of the present stream, from 1
	heard  atomic.Pointer[driver.Instant]
}

// init begins another stream.
func (w *watchStream) init() {
	w.number.Add(1)
	w.hear()
}

func (w *watchStream) hear() {
	now := driver.Now()
	w.heard.Store(&now)
}

func (w *watchStream) silence() time.Duration { return driver.Now().Sub(*w.heard.Load()) }

// context returns a context for watches. Watches whose contexts have the same
// metadata share a stream. The server ends the watches of a context with
// WithRequireLeader when it has lost its leader.
func (w *watchStream) context(ctx context.Context) context.Context {
	return clientv3.WithRequireLeader(metadata.AppendToOutgoingContext(ctx, "dlock-stream", strconv.FormatInt(w.number.Load(), 10)))
}
