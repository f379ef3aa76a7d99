package zkconn

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Go starts job on a goroutine of the Conn. If the Conn has shut down, Go
// returns false without running job.
func (c *Conn) Go(job func()) bool { return c.workers.run(job) }

// Work is like Go, but if the Conn has shut down, Work runs job on the calling
// goroutine, where all requests of the job fail.
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

// The states of a job run by Await.
const (
	running int32 = iota
	finished
	abandoned
)

// Await runs job on its own goroutine and returns the result, or an error as
// soon as ctx or the session ends. Since go-zookeeper takes no context, the job
// itself continues. If Await returns before the job, late receives the job's
// result, unless late is nil.
//
// If the session has no connection, Await waits for one before it starts job,
// because go-zookeeper would queue the request and send it even after the
// caller has given up. A job whose ctx can never end runs on the calling
// goroutine.
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

// unlessEnded returns v and err, or the session's error if the session has
// ended.
func unlessEnded[T any](c *Conn, v T, err error) (T, error) {
	if end := c.lease.Err(); end != nil {
		var none T
		return none, end
	}
	return v, err
}

// AwaitErr is [Await] for a job that returns only an error.
func AwaitErr(ctx context.Context, c *Conn, job func() error) error {
	_, err := Await(ctx, c, func() (struct{}, error) { return struct{}{}, job() }, nil)
	return err
}
