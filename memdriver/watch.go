package memdriver

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watch is one watch. It takes no goroutine. The store's mutex guards it.
type watch struct {
	session *session
	c       chan driver.Cause
	queue   *queue
	list    *[]*watch   // the list that it is armed in, nil if it is not armed
	closed  bool        // c is closed
	stop    func() bool // stops waiting for the end of the context
}

// Watch implements driver.Session: rule 6. The channel also closes when ctx
// ends.
func (s *session) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	return s.WatchPlace(ctx, queue, driver.Place{Node: driver.Node{Name: name}})
}

// WatchPlace implements driver.Releaser: rule 13. A place without a token is
// that of any node of its name.
func (s *session) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	req := request{op: OpWatch, queue: queue, name: p.Name}
	if err := driver.CheckQueue(queue); err != nil {
		return nil, req.failed(err)
	}
	w := &watch{session: s, c: make(chan driver.Cause, 1)}
	_, err := ask(ctx, s, req, func() (none, error) {
		s.store.arm(w, queue, p)
		return none{}, nil
	})
	if err != nil {
		w.drop()
		return nil, err
	}
	w.dropAfter(ctx)
	return w.c, nil
}

// dropAfter drops the watch when ctx ends.
func (w *watch) dropAfter(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.drop)
	w.session.store.mu.Lock()
	defer w.session.store.mu.Unlock()
	if w.closed {
		stop()
	}
	w.stop = stop
}

// drop takes the watch away, armed or on its way, and closes it.
func (w *watch) drop() {
	w.session.store.mu.Lock()
	defer w.session.store.mu.Unlock()
	w.session.store.disarm(w)
	w.close(driver.Changed)
}

// All functions below are called with the store's mutex held.

// close closes the channel, once. It sends why before, if that is more than a
// change.
func (w *watch) close(why driver.Cause) {
	if w.closed {
		return
	}
	w.closed = true
	if why != driver.Changed {
		w.c <- why
	}
	close(w.c)
	if w.stop != nil {
		w.stop()
	}
}

// event is the end of a watch, on its way from the store.
type event struct {
	watch *watch
	why   driver.Cause
	sent  time.Time
}

// deliver brings the end of a watch from the store to the session. Ends arrive
// in the order of the changes in the store: rule 13.
func (s *session) deliver(w *watch, why driver.Cause) {
	if len(s.inbox) == 0 && s.line.whole() {
		w.close(why)
		return
	}
	s.inbox = append(s.inbox, event{w, why, time.Now()})
	if len(s.inbox) == 1 {
		s.spawnLocked(s.carryEvents)
	}
}
