package zkconn

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Go runs job on a worker, which is a goroutine of the Conn, and does not wait
// for it. If the Conn has shut down, Go does not run job, and returns false.
func (c *Conn) Go(job func()) bool { return c.workers.run(job) }

// Work is like Go, but if the Conn has shut down, it runs job at once, on the
// calling goroutine. Every request of job then fails.
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

// The states of a job that a caller waits for.
const (
	running int32 = iota
	finished
	abandoned
)

// Await runs job and waits until job has returned, ctx has ended, or the
// session has ended. go-zookeeper takes no context: a request ends only when it
// was answered, when its connection breaks, or when the Conn shuts down. So job
// runs on a worker, unless ctx can never end. While the session has no
// connection, no job begins: go-zookeeper would keep its request and send it
// later, even if the caller has given up meanwhile.
//
// If Await returns before job does, the worker passes the result of job to the
// function late when job has returned. The function late may be nil.
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

// unlessEnded returns the result of a job. But if the session has ended
// meanwhile, it returns the session's error instead.
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
