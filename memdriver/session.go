package memdriver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/watches"
)

var (
	errClosed  = fmt.Errorf("%w: closed", driver.ErrSessionEnded)
	errExpired = fmt.Errorf("%w: it expired", driver.ErrSessionEnded)

	errUnknown  = fmt.Errorf("%w: the store does not know the session any more", driver.ErrSessionEnded)
	errNotOwner = errors.New("the node belongs to another session")
	// errCleanedUp reaches no caller, because the Create has already failed.
	errCleanedUp = errors.New("create was cleaned up before it arrived")
	// errNoAnswer marks a request that was sent but not answered, so that it
	// may or may not have been carried out.
	errNoAnswer = errors.New("no answer")
)

const closeTimeout = 2 * time.Second

var (
	_ driver.Connector = (*Store)(nil)
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

// session is the client's side of a session. record is the store's side.
type session struct {
	store   *Store
	record  *record // its fields belong to the store
	timeout time.Duration
	lease   *driver.Lease
	creates atomic.Int64
	ended   chan struct{} // closed when lease and watches have ended
	watches watches.Set

	background sync.WaitGroup

	// The fields below are guarded by the store's mutex.
	conn    connection
	inbox   []notice // notices on their way to the session
	stopped bool     // the lease has ended; serve and spawn nothing
	closed  bool     // whether the store has confirmed the end
}

// The lease must end before the store drops the session (rule 8). Its term is
// therefore shorter and starts when the request was sent.
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

// Done implements driver.Session (rule 8).
func (s *session) Done() <-chan struct{} { return s.lease.Done() }

// Err implements driver.Session (rule 8).
func (s *session) Err() error { return s.lease.Err() }

// Describe implements driver.Inspector.
func (s *session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.record.id, Server: "memory", Timeout: s.timeout}
}

// OnHeartbeat implements driver.Inspector.
func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.lease.OnRenew(f)
	return true
}

// Create implements driver.Session. Store.create assigns the position, name,
// token and nodes ahead (rules 1, 2, 3 and 5 of package driver). If the outcome
// is unknown, cleanUp removes the node (rule 4).
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Data = bytes.Clone(n.Data)
	call := s.creates.Add(1)
	j, err := ask(ctx, s, on(queue, faults.OpCreate, "", driver.CheckPrefix(n.Prefix)), func() (driver.Joined, error) {
		j, err := s.store.create(s.record, call, queue, n)
		if err == nil && n.Predecessor != nil {
			if i := n.Predecessor(j.Ahead); i >= 0 {
				j.Watch = s.watches.Arm(queue, j.Place, j.Ahead[i])
			}
		}
		return j, err
	})
	if errors.Is(err, errNoAnswer) {
		s.cleanUp(call, queue) // removes the node, which ends the watch
	}
	return j, err
}

// cleanUp removes the node of a Create whose outcome is unknown, even if that
// Create arrives later (rule 4 of package driver).
func (s *session) cleanUp(call int64, queue string) {
	s.spawn(func() {
		for s.lease.Err() == nil {
			if s.do(context.Background(), request{op: faults.OpCleanUp}, func() error {
				s.store.cleanUp(s.record, call, queue)
				return nil
			}) == nil {
				return
			}
		}
	})
}

// List implements driver.Session.
func (s *session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	return ask(ctx, s, on(queue, faults.OpList, "", nil), func() ([]driver.Node, error) {
		if q := s.store.queues[queue]; q != nil {
			return q.list(), nil
		}
		return nil, nil
	})
}

// Delete implements driver.Session (rule 7 of package driver).
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	_, err := ask(ctx, s, on(queue, faults.OpDelete, p.Name, nil), func() (struct{}, error) {
		return struct{}{}, s.store.delete(s.record, queue, p, why)
	})
	return err
}

func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	return ask(ctx, s, on(queue, faults.OpReplace, p.Name, driver.CheckPrefix(prefix)), func() (driver.Place, error) {
		return s.store.replace(s.record, queue, p, prefix)
	})
}

// Read implements driver.Inspector.
func (s *session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	return ask(ctx, s, on(queue, faults.OpRead, name, nil), func() (driver.NodeInfo, error) { return s.store.read(s.record, queue, name) })
}

// Walk implements driver.Inspector.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	req := request{op: faults.OpWalk, name: prefix}
	if prefix != "" {
		req.invalid = driver.CheckQueue(prefix)
	}
	return ask(ctx, s, req, func() ([]string, error) { return s.store.walk(prefix), nil })
}

// Remove implements driver.Inspector.
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	return s.do(ctx, on(queue, faults.OpRemove, p.Name, nil), func() error { return s.store.removePlace(queue, p) })
}

// SetValue implements driver.Inspector.
func (s *session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	value = append([]byte{}, value...)
	return s.do(ctx, on(queue, faults.OpSetValue, p.Name, driver.CheckValue(value)), func() error {
		return s.store.setValue(s.record, queue, p, value)
	})
}

// Value implements driver.Inspector.
func (s *session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	v, err := ask(ctx, s, on(queue, faults.OpValue, "", nil), func() (storedValue, error) { return s.store.values[queue], nil })
	return bytes.Clone(v.value), v.token, err
}

// Close implements driver.Session. It ends the lease before the store removes
// the nodes (rules 8 and 9 of package driver), and ends the session in the
// store even if the lease has run out. If the store cannot be reached, Close
// can be called again. It waits for the session's goroutines, which exit with
// the lease (rule 11).
func (s *session) Close() error {
	s.lease.End(errClosed)
	<-s.ended
	defer s.background.Wait()
	s.store.mu.Lock()
	closed := s.closed
	s.store.mu.Unlock()
	if closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(closeTimeout, s.timeout))
	defer cancel()
	answered := s.conn.roundTrip(faults.OpClose, ctx.Done(), func() {
		// An error means that the store has already dropped the session.
		_ = s.store.accept(s.record, faults.OpClose)
		s.store.drop(s.record)
	})
	if !answered {
		return fmt.Errorf("mem: close: %w: the session's nodes stay until the store drops the session, at most %v after its last request",
			driver.ErrUnavailable, s.timeout)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.closed = true
	return nil
}

// keepLease sends heartbeats until the lease ends. After that, the session
// serves no request and starts no goroutine.
func (s *session) keepLease() {
	s.lease.Run(func(ctx context.Context) error { // no retries: the next heartbeat follows soon
		return s.do(ctx, request{op: faults.OpHeartbeat}, func() error { return nil })
	})
	s.watches.End()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.stopped = true
	close(s.ended)
}

// spawn runs f on a goroutine that Close waits for. Once the session has ended,
// it returns false without running f.
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

type request struct {
	op      faults.Op
	queue   string
	name    string // the node's name, or Walk's prefix
	invalid error  // why the request must not be sent
}

func on(queue string, op faults.Op, name string, invalid error) request {
	return request{op, queue, name, errors.Join(driver.CheckQueue(queue), invalid)}
}

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

// do is like ask, for requests that are answered only with an error.
func (s *session) do(ctx context.Context, req request, serve func() error) error {
	_, err := ask(ctx, s, req, func() (struct{}, error) { return struct{}{}, serve() })
	return err
}

// ask sends a request and returns the answer. After errNoAnswer, the store may
// have served the request, may serve it later, or never.
func ask[T any](ctx context.Context, s *session, req request, serve func() (T, error)) (answer T, err error) {
	if req.invalid != nil {
		return answer, req.failed(req.invalid)
	}
	unanswered := s.lease.Do(func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		answer, err = exchange(ctx, s, req.op, serve)
		switch {
		case errors.Is(err, errNoAnswer):
			return err
		case errors.Is(err, driver.ErrSessionEnded):
			s.lease.End(err)
		}
		return nil // any answer renews the lease, even an error
	})
	if unanswered != nil {
		err = unanswered
	}
	if err != nil {
		return *new(T), req.failed(err)
	}
	return answer, nil
}

// If the caller of exchange gives up, the request continues on another
// goroutine. A request or reply in flight when the lease ends is lost.
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
