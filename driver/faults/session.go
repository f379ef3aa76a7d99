package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

const closeDelay = 2 * time.Second

type session struct {
	connector *Connector
	number    int
	inner     driver.Session

	life    context.Context // ends with the session
	endLife context.CancelFunc

	closes singleflight.Group // deduplicates concurrent calls of Close
	closed bool               // whether inner.Close has succeeded; guarded by closes

	all sync.WaitGroup // requests and goroutines that Close waits for

	mu    sync.Mutex
	ended bool // refuses new calls and goroutines; guarded by mu
	sent  map[kind]int
}

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

// Request.Nth numbers the requests of each kind separately.
type kind struct {
	op    Op
	queue string
}

func (c *Connector) newSession(number int, inner driver.Session) *session {
	s := &session{connector: c, number: number, inner: inner, sent: make(map[kind]int)}
	s.life, s.endLife = context.WithCancel(context.Background())
	c.mu.Lock()
	c.sessions[number] = s
	c.mu.Unlock()
	s.start(s.awaitEnd)
	return s
}

// enter registers work that Close waits for, unless the session is closed.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.all.Add(1)
	}
	return !s.ended
}

func (s *session) start(f func()) bool {
	open := s.enter()
	if open {
		go func() {
			defer s.all.Done()
			f()
		}()
	}
	return open
}

func (s *session) awaitEnd() {
	<-s.inner.Done()
	s.endLife()
	s.connector.mu.Lock()
	defer s.connector.mu.Unlock()
	delete(s.connector.sessions, s.number)
}

// Done and Err use the driver's session directly, so that callers learn of the
// session's end at once.
func (s *session) Done() <-chan struct{} { return s.inner.Done() }
func (s *session) Err() error            { return s.inner.Err() }

// Describe implements driver.Inspector.
func (s *session) Describe() driver.SessionInfo { return driver.Inspect(s.inner).Describe() }

// OnHeartbeat implements driver.Inspector.
func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	return driver.Inspect(s.inner).OnHeartbeat(f)
}

func (s *session) String() string { return fmt.Sprintf("session %d of faults", s.number) }

// end ends the session. When end returns, Done is closed, but the nodes may
// remain for a while.
func (s *session) end() {
	s.start(func() { _ = s.inner.Close() })
	<-s.inner.Done()
}

// Close implements driver.Session.
func (s *session) Close() error {
	_, err, _ := s.closes.Do("", func() (any, error) { return nil, s.close() })
	return err
}

func (s *session) close() error {
	if s.closed {
		return nil
	}
	if s.connector.plan != nil && s.inner.Err() == nil {
		s.delayClose()
	}
	err := s.inner.Close()
	s.endLife()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.all.Wait()
	s.closed = err == nil
	return err
}

func (s *session) delayClose() {
	ctx, cancel := context.WithTimeout(s.life, closeDelay)
	defer cancel()
	_, _ = s.connector.decide(ctx, s.numbered(Request{Op: OpClose}))
}

func (s *session) numbered(r Request) Request {
	r.Session = s.number
	s.mu.Lock()
	defer s.mu.Unlock()
	k := kind{r.Op, r.Queue}
	s.sent[k]++
	r.Nth = s.sent[k]
	return r
}

// order is a request together with the functions that execute it.
type order[T any] struct {
	Request
	do    func(ctx context.Context) (T, error)
	place func(T) driver.Place // returns the place in the answer, or nil
	// undo is called if the store has executed the request but the caller
	// gets an error. It may be nil.
	undo func(T)
}

type sent[T any] struct {
	answer    T
	onRequest Fault
	onReply   Fault
	request   Request
}

// send makes a request and injects faults. If ctx ends, send returns, but the
// request goes on, as it would on a network.
func send[T any](ctx context.Context, s *session, o order[T]) (sent[T], error) {
	if s.connector.plan == nil || o.refused() {
		v, err := o.do(ctx)
		return sent[T]{answer: v, request: o.Request}, err
	}
	o.Request = s.numbered(o.Request)
	if err := errors.Join(s.Err(), ctx.Err()); err != nil {
		return sent[T]{}, o.failed(err)
	}
	if !s.enter() {
		return sent[T]{}, o.failed(driver.ErrSessionEnded)
	}
	defer s.all.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	s.all.Add(1)
	got, err := detach(ctx, func() (sent[T], error) { return carry(s, o) },
		func(got sent[T], err error) {
			if err == nil && o.undo != nil {
				o.undo(got.answer)
			}
		}, s.all.Done)
	switch ended := s.Err(); {
	case err == nil:
		return got, nil
	case ended != nil:
		err = o.failed(ended)
	case err == ctx.Err():
		err = o.failed(err)
	}
	return sent[T]{}, err
}

// detach runs f on a goroutine. If ctx ends first, detach returns at once, and
// the function late receives the result later.
func detach[T any](ctx context.Context, f func() (T, error), late func(T, error), done func()) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	results, left := make(chan result), make(chan struct{})
	go func() {
		defer done()
		v, err := f()
		select {
		case results <- result{v, err}:
		case <-left:
			late(v, err)
		}
	}()
	select {
	case r := <-results:
		return r.v, r.err
	case <-ctx.Done():
		close(left)
		return v, ctx.Err()
	}
}

// carry makes one request, with its faults, even if the caller gives up.
func carry[T any](s *session, o order[T]) (got sent[T], err error) {
	got.request = o.Request
	r := &got.request
	if got.onRequest, err = s.decide(*r); err != nil {
		return got, err
	}
	got.answer, err = o.do(s.life)
	if errors.Is(err, errors.ErrUnsupported) {
		return got, err // not lost, because every call must return it
	}
	if got.onRequest.Repeat && r.repeatable() {
		_, _ = o.do(s.life)
	}
	if r.Err = err; err == nil && o.place != nil {
		r.Place = o.place(got.answer)
	}
	r.Stage = StageReply
	back, lost := s.decide(*r)
	if lost != nil && err == nil && o.undo != nil {
		s.start(func() { o.undo(got.answer) })
	}
	got.onReply = back
	return got, cmp.Or(lost, err)
}

func (s *session) decide(r Request) (Fault, error) {
	fault, err := s.connector.decide(s.life, r)
	if fault.EndSession && s.life.Err() == nil {
		s.end()
		err = r.failed(driver.ErrSessionEnded)
	}
	return fault, err
}
