package zkdriver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// go-zookeeper knows no context: a request takes as long as it takes, until its connection
// breaks or the session is taken down. So where the caller may go away earlier, the request
// runs on a worker.

// workers is a set of goroutines that run jobs. They are kept for the next job, because a new
// goroutine with a new stack costs more than many a request.
type workers struct {
	once sync.Once
	jobs chan func()
	quit chan struct{}
	idle atomic.Int32
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

const maxIdle = 16

func (w *workers) init() {
	w.once.Do(func() { w.jobs, w.quit = make(chan func()), make(chan struct{}) })
}

// run starts job on a worker; it does not wait. It reports false after close.
func (w *workers) run(job func()) bool {
	w.init()
	select {
	case w.jobs <- job:
		return true
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.wg.Go(func() { w.loop(job) })
	return true
}

func (w *workers) loop(job func()) {
	for {
		job()
		if w.idle.Add(1) > maxIdle {
			w.idle.Add(-1)
			return
		}
		select {
		case job = <-w.jobs:
			w.idle.Add(-1)
		case <-w.quit:
			return
		}
	}
}

// close waits until every job is done.
func (w *workers) close() {
	w.init()
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.quit)
	}
	w.mu.Unlock()
	w.wg.Wait()
}

// work runs job on a worker, or at once where there are no workers any more: every request
// fails then.
func (s *session) work(job func()) {
	if !s.workers.run(job) {
		job()
	}
}

// States of a job that somebody waits for.
const (
	running int32 = iota
	finished
	abandoned
)

// await runs job and waits for it, for ctx, and for the end of the session. If somebody has
// stopped waiting, late gets what job returned in the end; it may be nil.
func await[T any](ctx context.Context, s *session, job func() (T, error), late func(T, error)) (T, error) {
	var none T
	if err := s.lease.Err(); err != nil {
		return none, err
	}
	if ctx.Done() == nil {
		v, err := job()
		return unlessEnded(s, v, err)
	}
	if err := ctx.Err(); err != nil {
		return none, fmt.Errorf("zkdriver: %w", err)
	}
	var (
		v     T
		err   error
		state atomic.Int32
		done  = make(chan struct{})
	)
	s.work(func() {
		v, err = job()
		if state.CompareAndSwap(running, finished) {
			close(done)
		} else if late != nil {
			late(v, err)
		}
	})
	select {
	case <-done:
	case <-ctx.Done():
		if state.CompareAndSwap(running, abandoned) {
			return none, fmt.Errorf("zkdriver: %w", ctx.Err())
		}
		<-done
	case <-s.lease.Done():
		if state.CompareAndSwap(running, abandoned) {
			return none, s.lease.Err()
		}
		<-done
	}
	return unlessEnded(s, v, err)
}

// unlessEnded drops a result that came after the end of the session.
func unlessEnded[T any](s *session, v T, err error) (T, error) {
	if end := s.lease.Err(); end != nil {
		var none T
		return none, end
	}
	return v, err
}

// awaitErr is await for jobs that return an error only.
func awaitErr(ctx context.Context, s *session, job func() error) error {
	_, err := await(ctx, s, func() (struct{}, error) { return struct{}{}, job() }, nil)
	return err
}
