package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// ask waits for a spare connection and makes a request, unless the session has
// ended. It ends the session if the database no longer has it.
//
// The end of ctx interrupts no request, because the clients of the databases
// then close the connection. Under load, callers with short deadlines would
// close connections faster than the server can open them. So the caller leaves,
// and the request goes on until it is answered, its time limit passes or the
// session ends. The function drop, if not nil, gets a result that came too
// late.
func ask[T any](ctx context.Context, s *Session, what, queue string, drop func(T), request func(context.Context) (T, error)) (result T, err error) {
	life, done, open := s.calls.Enter(ctx)
	if !open {
		return result, s.lease.Err()
	}
	defer done()
	life, cancel := context.WithCancel(life)
	defer cancel()
	defer context.AfterFunc(s.ended, cancel)()
	if err = s.lease.Err(); err == nil {
		result, err = send(ctx, life, s, drop, request)
	}
	err = ifBusy(life, err)
	if errors.Is(err, context.DeadlineExceeded) && life.Err() == nil {
		// The driver's own timeout ended the request, so the error must not
		// match the caller's deadline.
		err = fmt.Errorf("%w: no answer in time", driver.ErrUnavailable)
	}
	if errors.Is(err, ErrUnknownSession) {
		s.lease.End(err)
	}
	if err != nil {
		result = *new(T)
		err = fmt.Errorf("%s: %s in %q: %w", s.name, what, queue, err)
	}
	if ended := s.lease.Err(); ended != nil {
		return *new(T), ended
	}
	return result, err
}

// send implements ask. Its wait ends with life.
func send[T any](ctx, life context.Context, s *Session, drop func(T), request func(context.Context) (T, error)) (result T, err error) {
	leave, err := s.store.Enter(life)
	if err != nil {
		return result, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	run := func() (T, error) {
		defer leave()
		// A request on a dead connection would never return.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(s.ended, cancel)()
		return request(ctx)
	}
	if ctx.Done() == nil {
		return run()
	}
	type answer struct {
		result T
		err    error
	}
	answers := make(chan answer)
	if !s.calls.Go(func() {
		result, err := run()
		select {
		case answers <- answer{result, err}:
		case <-life.Done():
			if err == nil && drop != nil {
				drop(result)
			}
		}
	}) {
		leave()
		return result, s.lease.Err()
	}
	select {
	case a := <-answers:
		return a.result, a.err
	case <-life.Done():
		return result, fmt.Errorf("%w: no answer yet: %w", driver.ErrUnavailable, life.Err())
	}
}

// askQueue is like ask but also checks the queue name.
func askQueue[T any](ctx context.Context, s *Session, what, queue string, drop func(T), request func(context.Context) (T, error)) (result T, err error) {
	if err := driver.CheckQueue(queue); err != nil && s.lease.Err() == nil {
		return result, fmt.Errorf("%s: %s in %q: %w", s.name, what, queue, err)
	}
	return ask(ctx, s, what, queue, drop, request)
}

// changeQueue is like askQueue for a change without a result.
func (s *Session) changeQueue(ctx context.Context, what, queue string, change func(context.Context, Op) error) error {
	_, err := askQueue(ctx, s, what, queue, nil, func(ctx context.Context) (none struct{}, err error) {
		return none, s.change(ctx, change)
	})
	return err
}
