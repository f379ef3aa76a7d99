package memdriver

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watch is one watch, from the call of Watch until its channel has closed.
// It takes no goroutine.
type watch struct {
	session *session
	shard   *shard
	ch      chan driver.Cause
	stop    func() bool // stops waiting for the context, nil if that can't end

	// Guarded by the shard's lock.
	queue   *queue
	on      *list[*watch] // the list it is armed in, nil if it is not armed
	armed   link[*watch]
	dropped bool // must not be armed any more

	// Guarded by the session's lock.
	closed bool
	mine   link[*watch] // in session.watches
}

// event is the end of a watch, on its way from the store.
type event struct {
	watch *watch
	why   driver.Cause
	sent  time.Time
}

// Watch implements driver.Session: rule 6. The channel also closes when ctx
// ends.
func (s *session) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	return s.watch(ctx, &request{op: OpWatch, queue: queue, name: name})
}

// WatchPlace implements driver.Releaser: rule 13.
func (s *session) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	return s.watch(ctx, &request{op: OpWatch, queue: queue, name: p.Name, place: p})
}

func (s *session) watch(ctx context.Context, req *request) (<-chan driver.Cause, error) {
	queue := req.queue
	if err := driver.CheckQueue(queue); err != nil {
		return nil, req.failed(err)
	}
	w := &watch{session: s, shard: s.store.shard(queue), ch: make(chan driver.Cause, 1)}
	if ctx.Done() != nil {
		w.stop = context.AfterFunc(ctx, w.drop)
	}
	req.watch = w
	s.enlist(w)
	rep, err := s.call(ctx, req)
	if err != nil || rep.missing {
		w.drop()
		w.release()
	}
	if err != nil {
		return nil, err
	}
	return w.ch, nil
}

// drop takes the watch away, armed or on its way, and closes it.
func (w *watch) drop() {
	w.shard.lock()
	w.dropped = true
	w.shard.disarm(w)
	w.shard.unlock()
	w.session.mu.Lock()
	defer w.session.mu.Unlock()
	w.session.close(w, driver.Changed)
}

// release lets go of the watch's context.
func (w *watch) release() {
	if w.stop != nil {
		w.stop()
	}
}

// enlist remembers a watch, so that the end of the session closes it.
func (s *session) enlist(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		s.close(w, driver.Changed)
	case !w.closed:
		s.watches.pushBack(&w.mine, w)
	}
}

// close closes a watch, once, and says why if it is not a mere change. The session's lock is
// held.
func (s *session) close(w *watch, why driver.Cause) {
	if !w.closed {
		w.closed = true
		s.watches.remove(&w.mine)
		if why != driver.Changed {
			w.ch <- why
		}
		close(w.ch)
	}
}

// closeWatches closes all watches and lets no more be made.
func (s *session) closeWatches() {
	for _, w := range s.takeWatches() {
		w.drop()
		w.release()
	}
}

func (s *session) takeWatches() []*watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.inbox = nil
	watches := make([]*watch, 0, s.watches.len)
	for w := range s.watches.all() {
		watches = append(watches, w)
	}
	return watches
}

// deliver brings the end of a watch from the store to the session. Ends arrive
// in the order of the calls, which is the order of the changes in the store,
// because it calls under the lock of the queue's shard.
func (s *session) deliver(w *watch, why driver.Cause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
	case len(s.inbox) == 0 && s.line.clear():
		s.close(w, why)
	default:
		s.inbox = append(s.inbox, event{w, why, time.Now()})
		if len(s.inbox) == 1 {
			s.spawnLocked(s.carryEvents)
		}
	}
}

// carryEvents delivers what is in the inbox, as fast as the line permits.
func (s *session) carryEvents() {
	for e, more := s.nextEvent(false); more; e, more = s.nextEvent(true) {
		if !s.line.travel(e.sent, s.lease.Done()) {
			return
		}
		s.mu.Lock()
		s.close(e.watch, e.why)
		s.mu.Unlock()
	}
}

// nextEvent returns the first event of the inbox, after taking out the one
// before it if that has arrived. Until then it stays, so that none overtakes it.
func (s *session) nextEvent(arrived bool) (e event, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if arrived && len(s.inbox) > 0 {
		s.inbox = s.inbox[1:]
	}
	if len(s.inbox) == 0 {
		return event{}, false
	}
	return s.inbox[0], true
}
