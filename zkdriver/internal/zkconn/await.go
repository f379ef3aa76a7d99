package zkconn

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Go runs job on a worker, which is a goroutine of the Conn, without waiting
// for it. If the Conn has shut down, it returns false and does not run job.
func (c *Conn) Go(job func()) bool { return c.workers.run(job) }

// Work is like Go, but once the Conn has shut down it runs job on the calling
// goroutine. Every request of job then fails.
func (c *Conn) Work(job func()) {
	if !c.workers.run(job) {
		job()
	}
}

// AwaitConnection waits until the session has a connection. It returns an error
// if the session or ctx has ended.
func (c *Conn) AwaitConnection(ctx context.Context) error {
	if err := c.lease.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("zkdriver: %w", err)
	}
	select {
	case <-c.dialer.connected():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("zkdriver: %w", ctx.Err())
	case <-c.lease.Done():
		return c.lease.Err()
	}
}

// The states of an awaited job.
const (
	running int32 = iota
	finished
	abandoned
)

// Await runs job, and returns when job has returned, or when ctx or the session
// has ended. go-zookeeper takes no context: a request ends only when it is
// answered, its connection breaks, or the Conn shuts down. So job runs on a
// worker, unless ctx can never end. While the session has no connection, no job
// begins, because go-zookeeper would keep its request and send it later, even
// if the caller has given up by then.
//
// If Await returns before job does, the result of job goes to late, unless that
// is nil.
func Await[T any](ctx context.Context, c *Conn, job func() (T, error), late func(T, error)) (T, error) {
	var none T
	if err := c.AwaitConnection(ctx); err != nil {
		return none, err
	}
	if ctx.Done() == nil {
		v, err := job()
		return unlessEnded(c, v, err)
	}
	var (
		v     T
		err   error
		state atomic.Int32
		done  = make(chan struct{})
	)
	c.Work(func() {
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
	case <-c.lease.Done():
		if state.CompareAndSwap(running, abandoned) {
			return none, c.lease.Err()
		}
		<-done
	}
	return unlessEnded(c, v, err)
}

// unlessEnded returns the result of a job, or the session's error if the
// session has ended meanwhile.
func unlessEnded[T any](c *Conn, v T, err error) (T, error) {
	if end := c.lease.Err(); end != nil {
		var none T
		return none, end
	}
	return v, err
}

// AwaitErr is Await for a job that returns only an error.
func AwaitErr(ctx context.Context, c *Conn, job func() error) error {
	_, err := Await(ctx, c, func() (struct{}, error) { return struct{}{}, job() }, nil)
	return err
}
