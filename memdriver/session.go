package memdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/dlocktest/faults"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

var (
	errClosed  = fmt.Errorf("%w: closed", driver.ErrSessionEnded)
	errExpired = fmt.Errorf("%w: it expired", driver.ErrSessionEnded)

	// errUnknown is the store's answer to a session that it has dropped.
	errUnknown = fmt.Errorf("%w: the store does not know the session any more", driver.ErrSessionEnded)
	// errNotOwner is the store's answer to a session that wants to release or
	// replace the node of another session.
	errNotOwner = errors.New("the node belongs to another session")
	// errCleanedUp is the store's answer to a Create that its own clean-up has
	// overtaken. No caller waits for it.
	errCleanedUp = errors.New("create was cleaned up before it arrived")
	// errNoAnswer marks the error of a request that was sent and not answered:
	// the store may or may not have done what it asks for.
	errNoAnswer = errors.New("no answer")
)

// closeTimeout is how long Close waits for a store that does not answer.
const closeTimeout = 2 * time.Second

var (
	_ driver.Connector  = (*Store)(nil)
	_ driver.Session    = (*session)(nil)
	_ driver.Replacer   = (*session)(nil)
	_ driver.NodeReader = (*session)(nil)
	_ driver.Walker     = (*session)(nil)
	_ driver.Describer  = (*session)(nil)
)

// session is the client's half of a session.
type session struct {
	store   *Store
	record  *record // what requests refer to; only the store looks into it
	timeout time.Duration
	lease   *driver.Lease
	creates atomic.Int64  // Creates so far, to number them
	ended   chan struct{} // closes when the lease and all watches have ended
	watches watches.Set

	background sync.WaitGroup // every goroutine of the session: rule 11

	// The store's mutex guards what follows.
	conn    connection
	inbox   []notice // on their way here
	stopped bool     // no request arrives, and no goroutine starts, any more
	closed  bool     // the store has confirmed the end
}

// newSession returns the session of a record that the store has made for a
// request sent at that instant. The term of the lease is a quarter shorter than
// the timeout of the record, and counts from the sending of requests, not from
// their arrival: rule 8.
func newSession(st *Store, r *record, sent driver.Instant) *session {
	s := &session{
		store:   st,
		record:  r,
		timeout: r.timeout,
		lease:   driver.NewLease(r.timeout, 0),
		ended:   make(chan struct{}),
		conn:    connection{store: st},
	}
	s.lease.Renew(sent)
	s.background.Go(s.keepLease)
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

// Create implements driver.Session. Order, names, tokens and the nodes ahead
// (rules 1, 2, 3 and 5) are the store's business; all or nothing (rule 4) is
// cleanUp's.
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	req := request{op: faults.OpCreate, queue: queue}
	if err := errors.Join(driver.CheckQueue(queue), driver.CheckPrefix(n.Prefix)); err != nil {
		return driver.Joined{}, req.failed(err)
	}
	n.Data = bytes.Clone(n.Data)
	call := s.creates.Add(1)
	j, err := ask(ctx, s, req, func() (driver.Joined, error) {
		j, err := s.store.create(s.record, call, queue, n)
		if err == nil && n.Predecessor != nil {
			if i := n.Predecessor(j.Ahead); i >= 0 {
				j.Watch = s.watches.Arm(queue, j.Place, j.Ahead[i])
			}
		}
		return j, err
	})
	if errors.Is(err, errNoAnswer) {
		s.cleanUp(call, queue) // which ends the watch as well
	}
	return j, err
}

// cleanUp removes what a Create of unknown outcome has left, or will have left
// when it arrives: rule 4. It goes on in the background until the store has
// confirmed that, or has dropped the session and the node with it. The
// number of the call stands for the node here; a store that knows no such
// numbers is asked for the node with the data of the call.
func (s *session) cleanUp(call int64, queue string) {
	s.spawn(func() {
		for s.lease.Err() == nil {
			_, err := ask(context.Background(), s, request{op: faults.OpCleanUp}, func() (none, error) {
				s.store.cleanUp(s.record, call, queue)
				return none{}, nil
			})
			if err == nil {
				return
			}
		}
	})
}

// List implements driver.Session.
func (s *session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	req := request{op: faults.OpList, queue: queue}
	if err := driver.CheckQueue(queue); err != nil {
		return nil, req.failed(err)
	}
	return ask(ctx, s, req, func() ([]driver.Node, error) {
		if q := s.store.queues[queue]; q != nil {
			return q.list(), nil
		}
		return nil, nil
	})
}

// Delete implements driver.Session: rule 7.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	req := request{op: faults.OpDelete, queue: queue, name: p.Name}
	if err := driver.CheckQueue(queue); err != nil {
		return req.failed(err)
	}
	_, err := ask(ctx, s, req, func() (none, error) { return none{}, s.store.delete(s.record, queue, p, why) })
	return err
}

// Replace implements driver.Replacer: rule 12.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	req := request{op: faults.OpReplace, queue: queue, name: p.Name}
	if err := errors.Join(driver.CheckQueue(queue), driver.CheckPrefix(prefix)); err != nil {
		return driver.Place{}, req.failed(err)
	}
	return ask(ctx, s, req, func() (driver.Place, error) {
		return s.store.replace(s.record, queue, p, prefix)
	})
}

// Read implements driver.NodeReader.
func (s *session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	req := request{op: faults.OpRead, queue: queue, name: name}
	if err := driver.CheckQueue(queue); err != nil {
		return driver.NodeInfo{}, req.failed(err)
	}
	return ask(ctx, s, req, func() (driver.NodeInfo, error) { return s.store.read(s.record, queue, name) })
}

// Walk implements driver.Walker.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	req := request{op: faults.OpWalk, name: prefix}
	if prefix != "" {
		if err := driver.CheckQueue(prefix); err != nil {
			return nil, req.failed(err)
		}
	}
	return ask(ctx, s, req, func() ([]string, error) { return s.store.walk(prefix), nil })
}

// Close implements driver.Session. The lease ends first, the nodes go after
// that: rules 8 and 9. A session whose lease has run out is ended in the store
// all the same. A Close that could not reach the store can be repeated. All
// goroutines end because the lease has: rule 11.
func (s *session) Close() error {
	s.lease.End(errClosed)
	<-s.ended
	defer s.background.Wait()
	if s.isClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(closeTimeout, s.timeout))
	defer cancel()
	answered := s.conn.roundTrip(faults.OpClose, ctx.Done(), func() {
		_ = s.store.accept(s.record, faults.OpClose) // a dropped session is closed, too
		s.store.drop(s.record)
	})
	if !answered {
		return fmt.Errorf("mem: close: %w: the session's nodes stay until the store drops it, at most %v after it has heard of the session last",
			driver.ErrUnavailable, s.timeout)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.closed = true
	return nil
}

func (s *session) isClosed() bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.closed
}

// keepLease sends the heartbeats. When the lease has ended, keep ends the watches, and
// no request arrives and no goroutine starts any more.
func (s *session) keepLease() {
	s.lease.Keep(s.heartbeat)
	s.watches.End()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.stopped = true
	close(s.ended)
}

// heartbeat asks the store for nothing, and reports whether the store has answered. A
// lost beat needs no care: the next one is the second try.
func (s *session) heartbeat(ctx context.Context) bool {
	_, err := ask(ctx, s, request{op: faults.OpHeartbeat}, func() (none, error) { return none{}, nil })
	return err == nil
}

// spawn runs f in a goroutine that Close waits for. It returns false after the
// end of the session.
func (s *session) spawn(f func()) bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.spawnLocked(f)
}

func (s *session) spawnLocked(f func()) bool {
	if !s.stopped {
		s.background.Go(f)
	}
	return !s.stopped
}

// request says what a session asks the store for, and of which queue and node.
type request struct {
	op    faults.Op
	queue string
	name  string
}

// failed returns an error that names the request.
func (r request) failed(err error) error {
	what := r.op.String()
	if r.name != "" {
		what += fmt.Sprintf(" %q", r.name)
	}
	if r.queue != "" {
		what += fmt.Sprintf(" in %q", r.queue)
	}
	return fmt.Errorf("mem: %s: %w", what, err)
}

// none is the answer to a request that asks for nothing.
type none struct{}

// ask sends a request to the store and returns the answer. The store calls serve
// when the request arrives, with its mutex held. Every answer renews the lease,
// from the instant at which the request was sent: rule 8. An error that matches
// errNoAnswer leaves open whether the store has served the request, or will.
func ask[T any](ctx context.Context, s *session, req request, serve func() (T, error)) (answer T, err error) {
	ended := s.lease.Do(func() (counted bool) {
		if err = ctx.Err(); err != nil {
			return false
		}
		answer, err = exchange(ctx, s, req.op, serve)
		if errors.Is(err, driver.ErrSessionEnded) {
			s.lease.End(err)
		}
		return !errors.Is(err, errNoAnswer)
	})
	if ended != nil {
		err = ended
	}
	if err != nil {
		return *new(T), req.failed(err)
	}
	return answer, nil
}

// exchange brings a request to the store and the answer back. On a line with
// faults that takes a goroutine, because what was sent goes on its way when the
// caller has stopped waiting for it. A request or reply that is on its way when the
// lease ends is lost.
func exchange[T any](ctx context.Context, s *session, op faults.Op, serve func() (T, error)) (T, error) {
	arrive := func() (r reply[T]) {
		if s.stopped {
			return reply[T]{err: errClosed}
		}
		if r.err = s.store.accept(s.record, op); r.err == nil {
			r.answer, r.err = serve()
		}
		return r
	}
	s.store.mu.Lock()
	if s.conn.intact() {
		defer s.store.mu.Unlock()
		r := arrive()
		return r.answer, r.err
	}
	replies := make(chan reply[T], 1)
	started := s.spawnLocked(func() {
		defer close(replies)
		var r reply[T]
		if s.conn.roundTrip(op, s.lease.Done(), func() { r = arrive() }) {
			replies <- r
		}
	})
	s.store.mu.Unlock()
	if !started {
		return *new(T), errClosed
	}
	select {
	case r, ok := <-replies:
		if !ok {
			r.err = fmt.Errorf("%w: %w: the connection broke", errNoAnswer, driver.ErrUnavailable)
		}
		return r.answer, r.err
	case <-ctx.Done():
		return *new(T), fmt.Errorf("%w: %w", errNoAnswer, ctx.Err())
	}
}

type reply[T any] struct {
	answer T
	err    error
}
