package entry

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// A request that changes the store continues when its caller's context ends,
// because nobody would know the outcome of an interrupted request. The caller
// returns, and the answer is handled in the background: a node that was created
// is removed. Until then the session's next call for the same queue waits.
// Otherwise calls with short deadlines would add nodes to a store under load
// faster than it can remove them. As each node delays the calls behind it, such
// a queue would not recover even after the load has gone.

// leftover counts the requests in a queue whose callers have returned:
// unanswered Creates, and removals that are not confirmed.
type leftover struct {
	requests int
	err      error         // why the latest attempt failed
	change   chan struct{} // closed when all requests are confirmed or an attempt has failed
}

// leave counts one more request in the queue whose caller has returned.
func (s *Grants) leave(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.left[queue]
	if l == nil {
		l = &leftover{change: make(chan struct{})}
		s.left[queue] = l
	}
	l.requests++
}

// settle is called when a request counted by leave has ended.
func (s *Grants) settle(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.left[queue]
	if l.requests--; l.requests == 0 {
		delete(s.left, queue)
		l.err = nil
		close(l.change)
	}
}

// tryFailed wakes the waiting calls with the error of a failed attempt.
func (s *Grants) tryFailed(queue string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.left[queue]; l != nil {
		close(l.change)
		l.err, l.change = err, make(chan struct{})
	}
}

// awaitLeft waits until the queue has no requests counted by leave. If an
// attempt fails meanwhile, awaitLeft returns its error.
func (s *Grants) awaitLeft(ctx context.Context, queue string) error {
	s.mu.Lock()
	l := s.left[queue]
	if l == nil {
		s.mu.Unlock()
		return nil
	}
	change := l.change
	s.mu.Unlock()
	select {
	case <-change:
		s.mu.Lock()
		defer s.mu.Unlock()
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Done():
		return s.Err()
	case <-s.client.Draining:
		return errClosing
	}
}

// request is the Create or the Delete of an entry.
type request struct {
	over     sync.Cond // signalled when answered or left is set; its mutex, Entry.mu, guards all
	answered bool
	err      error // the answer
	left     bool  // whether the caller has returned without the answer
}

// answer passes the answer to the caller. It returns false if the caller has
// already returned. If repeated is true, the request is sent again, and the
// session's next calls for the queue wait for it in either case.
func (e *Entry) answer(r *request, err error, repeated bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.left {
		return false
	}
	if repeated {
		e.session.leave(e.queue.Name)
	}
	r.answered, r.err = true, err
	r.over.Signal()
	return true
}

// leave ends the caller's wait for the answer, if there is none yet. From then
// on, the session's next calls for the queue wait for the request.
func (e *Entry) leave(r *request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.answered && !r.left {
		r.left = true
		e.session.leave(e.queue.Name)
		r.over.Signal()
	}
}

func (e *Entry) awaitAnswer(r *request) (err error, answered bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !r.answered && !r.left {
		r.over.Wait()
	}
	return r.err, r.answered
}

// create sends a Create. If ctx ends first, create returns its error, and the
// node is removed once the store has answered.
func (e *Entry) create(ctx context.Context, n driver.NodeSpec) error {
	unlimited := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		return e.createNow(unlimited, n)
	}
	if !e.session.client.Go(func() {
		err := e.createNow(unlimited, n)
		if e.answer(&e.creation, err, false) {
			return
		}
		if err == nil {
			e.Abandon()
		}
		e.session.settle(e.queue.Name)
	}) {
		return errClosing
	}
	defer context.AfterFunc(ctx, func() { e.leave(&e.creation) })()
	if err, answered := e.awaitAnswer(&e.creation); answered {
		return err
	}
	return ctx.Err()
}

func (e *Entry) createNow(ctx context.Context, n driver.NodeSpec) error {
	j, err := e.session.Create(ctx, e.queue.Name, n)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.move(waiting)
	e.first, e.place, e.created, e.followed = j, j.Place, j.Created, j.Behind
	return nil
}
