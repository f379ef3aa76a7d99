package entry

import (
	"context"
	"runtime"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// A request that changes the store continues when its caller's context ends,
// because nobody would know the outcome of an interrupted request. The caller
// returns, and the answer is handled in the background: a node that was created
// is removed. Until then the session's next call for the same queue waits.
// Otherwise calls with short deadlines would add nodes to a store under load
// faster than it can remove them. As each node delays the calls behind it, such
// a queue would not recover even after the load has gone.
//
// A request that runs on its caller's goroutine is interrupted, but seldom:
// Remove has a long time limit, and the reaper repeats its Delete. A Create is
// sent so only to a store that has just answered another one promptly.

// leftover counts the requests in a queue whose callers have returned:
// unanswered Creates, and removals that are not confirmed.
type leftover struct {
	requests int
	err      error         // why the latest attempt failed
	change   chan struct{} // closed when all requests are confirmed or an attempt has failed
}

// leave counts one more request whose caller has returned.
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

// tryFailed makes the calls that wait in awaitLeft return err.
func (s *Grants) tryFailed(queue string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.left[queue]; l != nil {
		close(l.change)
		l.err, l.change = err, make(chan struct{})
	}
}

// awaitLeft waits until the queue has no requests counted by leave. If such a
// request fails meanwhile, awaitLeft returns its error.
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

// detach runs the function request on another goroutine, and returns its error.
// If ctx ends first, the function late gets that error instead, and the
// session's next calls for the queue wait until then.
func (e *Entry) detach(ctx context.Context, request func() error, late func(error)) error {
	answer, left := make(chan error), make(chan struct{})
	if !e.session.client.Go(func() {
		growStack()
		err := request()
		select {
		case answer <- err:
		case <-left:
			late(err)
			e.session.settle(e.queue.Name)
		}
	}) {
		return errClosing
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		e.session.leave(e.queue.Name)
		close(left)
		return ctx.Err()
	}
}

// growStack grows the stack of a new goroutine once, by enough for a driver's
// request. Otherwise the runtime would grow it in several steps, which costs up
// to a tenth of the client's work for a free lock.
//
//go:noinline
func growStack() {
	var room [14 << 10]byte
	runtime.KeepAlive(&room)
}

// promptly is how fast the latest Create must have been answered for the next
// one to run on its caller's goroutine, which saves a sixth of a free lock's
// time on Redis. If ctx ends then, the caller waits a little longer for the
// answer, so that an overload of a prompt store interrupts few Creates.
const promptly = 5 * time.Millisecond

// create sends a Create. If ctx ends first, create returns the error of ctx,
// and the node is removed once the store has answered.
func (e *Entry) create(ctx context.Context, n driver.NodeSpec) error {
	if ctx.Done() == nil {
		return e.createNow(ctx, n)
	}
	lasting := context.WithoutCancel(ctx)
	if e.session.prompt.Load() {
		err := e.createHere(ctx, lasting, n)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return e.detach(ctx, func() error { return e.createNow(lasting, n) }, func(err error) {
		if err == nil {
			e.Abandon()
		}
	})
}

// createHere sends a Create that ends at most abandonTimeout after ctx. Its own
// deadline is only to tell the driver that the Create is not about to end.
func (e *Entry) createHere(ctx, lasting context.Context, n driver.NodeSpec) error {
	lasting, cancel := context.WithTimeout(lasting, time.Minute)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(abandonTimeout, cancel) })()
	return e.createNow(lasting, n)
}

func (e *Entry) createNow(ctx context.Context, n driver.NodeSpec) error {
	e.asked = time.Now()
	j, err := e.session.Create(ctx, e.queue.Name, n)
	e.session.prompt.Store(err == nil && time.Since(e.asked) < promptly)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.move(waiting)
	e.first, e.place, e.created, e.followed = j, j.Place, j.Created, j.Behind
	return nil
}
