package memdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/dlock-go/dlock/driver"
)

var (
	errClosed  = fmt.Errorf("%w: closed", driver.ErrSessionEnded)
	errExpired = fmt.Errorf("%w: it expired", driver.ErrSessionEnded)

	// errNoAnswer marks the error of a request that was sent and of which nobody
	// knows what became of it.
	errNoAnswer = errors.New("no answer")
)

// closePatience is how long Close waits for a store that does not answer.
const closePatience = 2 * time.Second

// session is the client's half of a session.
type session struct {
	store   *Store
	record  *record // what requests refer to; only the store looks into it
	timeout time.Duration
	lease   *driver.Lease
	line    line
	creates atomic.Int64 // Creates so far, to number them

	ended  chan struct{}      // closes when the lease has ended and every watch is closed
	closes singleflight.Group // concurrent calls of Close share one try
	gone   bool               // the store has confirmed the end; belongs to closes

	mu         sync.Mutex
	over       bool           // no watch can be added any more
	hungUp     bool           // no goroutine can be started any more
	background sync.WaitGroup // every goroutine of the session: rule 11
	watches    list[*watch]   // open ones, armed or on their way
	inbox      []event        // ends of watches that are on their way here
}

// newSession returns the session of a record, which the store has made for a
// request sent at that instant. The lease is a quarter shorter than what the
// store allows, and counts from the sending of requests, not from their
// arrival: rule 8.
func newSession(st *Store, r *record, timeout time.Duration, sent driver.Instant) *session {
	s := &session{
		store:   st,
		record:  r,
		timeout: timeout,
		lease:   driver.NewLease(timeout, 0),
		ended:   make(chan struct{}),
	}
	s.lease.Renew(sent)
	s.line.reach = &st.reach
	s.spawn(s.keep)
	return s
}

// Done implements driver.Session: rule 8.
func (s *session) Done() <-chan struct{} { return s.lease.Done() }

// Err implements driver.Session: rule 8.
func (s *session) Err() error { return s.lease.Err() }

// Describe implements driver.Describer.
func (s *session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.record.id, Server: "memory", Timeout: s.timeout}
}

// Close implements driver.Session. The lease ends first, the nodes go after
// that: rules 8 and 9. A session whose lease has run out is ended in the store
// all the same. A Close that could not reach the store can be repeated.
func (s *session) Close() error {
	s.lease.End(errClosed)
	<-s.ended
	_, err, _ := s.closes.Do("", func() (any, error) { return nil, s.leave() })
	return err
}

func (s *session) leave() error {
	if s.gone {
		return nil
	}
	err := s.sayGoodbye()
	s.hangUp()
	s.gone = err == nil
	return err
}

func (s *session) sayGoodbye() error {
	ctx, cancel := context.WithTimeout(context.Background(), min(closePatience, s.timeout))
	defer cancel()
	answer := make(chan reply, 1)
	s.carry(ctx.Done(), request{op: OpClose}, answer)
	if rep, ok := <-answer; !ok || rep.err != nil {
		return fmt.Errorf("mem: close: %w: the session's nodes stay until the store drops it, at most %v after it has heard of the session last",
			driver.ErrUnavailable, s.timeout)
	}
	return nil
}

// hangUp waits for all goroutines of the session: rule 11. They end because the
// lease has.
func (s *session) hangUp() {
	s.mu.Lock()
	s.hungUp = true
	s.mu.Unlock()
	s.background.Wait()
}

// spawn runs f in a goroutine that Close waits for. After Close it does nothing and
// returns false.
func (s *session) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spawnLocked(f)
}

func (s *session) spawnLocked(f func()) bool {
	if !s.hungUp {
		s.background.Go(f)
	}
	return !s.hungUp
}

// keep sends the heartbeats, and closes the watches when the session has ended.
// A heartbeat does not wait for the answer to the one before, so that a slow
// line does not cost the lease.
func (s *session) keep() {
	heart := time.NewTicker(s.timeout / 4)
	defer heart.Stop()
	for {
		select {
		case <-heart.C:
			s.spawn(s.beat)
		case <-s.lease.Done():
			s.closeWatches()
			close(s.ended)
			return
		}
	}
}

// beat renews the lease, or ends it if the store has dropped the session. Other
// errors need no care: the next beat is the second try.
func (s *session) beat() {
	_, _ = s.call(context.Background(), &request{op: OpHeartbeat})
}

// call sends a request and returns what the store answers. Every answer renews
// the lease, from the instant at which its request was sent: rule 8. An error
// names the request; one that matches errNoAnswer leaves open what became of it.
func (s *session) call(ctx context.Context, req *request) (reply, error) {
	sent, err := s.lease.Now(), s.lease.Err()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return reply{}, req.failed(err)
	}
	rep, err := s.exchange(ctx, s.lease.Done(), req)
	switch {
	case err != nil && s.lease.Err() == nil:
		return reply{}, req.failed(err)
	case errors.Is(rep.err, driver.ErrSessionEnded):
		s.lease.End(rep.err)
	case err == nil && s.lease.Renew(sent):
		if rep.err != nil {
			return reply{}, req.failed(rep.err)
		}
		return rep, nil
	}
	return reply{}, req.failed(s.lease.Err())
}

// exchange brings a request to the store and the reply back. On a line with
// faults that takes a goroutine, because what was sent goes on its way when the
// caller has stopped waiting for it. The connection ends when quit closes: what
// is on its way then is lost.
func (s *session) exchange(ctx context.Context, quit <-chan struct{}, req *request) (reply, error) {
	if s.line.clear() {
		return s.store.serve(s.record, req), nil
	}
	return s.exchangeSlowly(ctx, quit, *req)
}

func (s *session) exchangeSlowly(ctx context.Context, quit <-chan struct{}, req request) (reply, error) {
	answer := make(chan reply, 1)
	if !s.spawn(func() { s.carry(quit, req, answer) }) {
		return reply{}, errClosed
	}
	select {
	case rep, ok := <-answer:
		if ok {
			return rep, nil
		}
		return reply{}, fmt.Errorf("%w: %w: the connection broke", errNoAnswer, driver.ErrUnavailable)
	case <-ctx.Done():
		return reply{}, fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

// carry takes a request to the store and sends the reply, or closes the channel without one.
func (s *session) carry(quit <-chan struct{}, req request, answer chan<- reply) {
	defer close(answer)
	fate := s.line.fate(req.op)
	if fate == requestLost || !s.line.travel(time.Now(), quit) {
		return
	}
	rep := s.store.serve(s.record, &req)
	if fate == replyLost || !s.line.travel(time.Now(), quit) {
		return
	}
	answer <- rep
}
