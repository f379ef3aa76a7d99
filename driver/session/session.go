package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// Config describes a session.
type Config struct {
	Name    string // name of the driver's package; the session puts it before each error
	ID      string // identifies the session in the store
	Timeout time.Duration
	Server  func() string // address of the store, without secrets; nil if it has none

	// Shortest and Longest limit the time between two polls of a waiting
	// session. Within these limits it waits for an eighth of the time since the
	// last change, so that polling prolongs a wait by at most an eighth, but
	// longer behind other contenders. The defaults are 2 ms and 250 ms.
	Shortest, Longest time.Duration
	// If Awaits is set, Look waits for the removal of Query.Await. A session
	// that waits in only one queue and may get the lock soon then calls Look
	// again when Shortest has passed since the start of the last call, or at
	// once if that call took longer.
	Awaits bool

	// Requests limits the concurrent requests for callers, but not heartbeats
	// and other requests of the session itself. The default is 16.
	Requests int
	// Busy tells the user how to allow more requests. It is part of the error
	// of a call whose ctx ended before the call could send its request.
	Busy string
}

// Session implements driver.Session and driver.Inspector on a [Store].
type Session struct {
	config   Config
	store    Store
	notifier Notifier  // the store, or nil if it is no Notifier
	inspect  Inspector // the store, or nil
	reader   Reader    // the store, or a looker
	expirer  Expirer   // the store, or nil
	admitter Admitter  // the store, or nil
	lease    *driver.Lease
	life     context.Context // ends with the lease
	watches  watches.Set
	notices  notices
	looks    looks
	orphans  orphans
	due      chan time.Duration // time until a deadline that a heartbeat reported

	group  group         // the goroutines of the session and the calls in flight
	slots  chan struct{} // one element for each request in flight for a caller
	begun  Begun
	graced time.Duration // how long Connect waited for earlier leases to end
	number atomic.Int64  // Change.Number of the latest Create

	closing sync.Mutex // held during Close
	closed  bool       // whether the store has removed the session
}

var (
	_ driver.Session   = (*Session)(nil)
	_ driver.Inspector = (*Session)(nil)
)

// Connect begins a session. If it returns an error, it makes no more requests,
// and the driver must close the store's connections.
func Connect(ctx context.Context, store Store, c Config) (*Session, error) {
	if c.Server == nil {
		c.Server = func() string { return "" }
	}
	c.Shortest = cmp.Or(c.Shortest, 2*time.Millisecond)
	c.Longest = cmp.Or(c.Longest, 250*time.Millisecond)
	s := &Session{config: c, store: store, lease: driver.NewLease(c.Timeout, 0),
		due: make(chan time.Duration, 1), slots: make(chan struct{}, cmp.Or(c.Requests, 16))}
	s.life, _ = s.lease.Context() // needs no cancel, because the end of the lease frees it
	s.notifier = optional[Notifier](store)
	s.inspect = optional[Inspector](store)
	if s.reader = optional[Reader](store); s.reader == nil {
		s.reader = looker{s.inspect, store}
	}
	s.expirer = optional[Expirer](store)
	s.admitter = optional[Admitter](store)
	s.looks.init()
	s.notices.arming, s.notices.stale = make(map[*arming]bool), make(map[string]int)
	if st := optional[Starter](store); st != nil {
		st.Start(Host{s})
	}
	if err := s.begin(ctx); err != nil {
		s.lease.End(err)
		s.group.Close()
		return nil, fmt.Errorf("%s: connect: %w", c.Name, err)
	}
	s.group.Go(func() { s.lease.Run(s.beat) })
	s.group.Go(s.look)
	s.group.Go(s.expire)
	s.group.Go(s.tidy)
	return s, nil
}

// optional returns store as a T. It returns nil unless the store, and each
// store that it wraps, is a T.
func optional[T any](store Store) (none T) {
	for inner := store; ; {
		if _, ok := inner.(T); !ok {
			return none
		}
		w, ok := inner.(interface{ Unwrap() Store })
		if !ok {
			return store.(T)
		}
		inner = w.Unwrap()
	}
}

// limit is the time limit of a request. One is needed, as its connection may go
// silent while heartbeats succeed on others. It is at least two seconds, so
// that even sessions with a short timeout can wait for a lock in the store.
func (s *Session) limit() time.Duration { return max(s.config.Timeout/4, 2*time.Second) }

// ask makes a request, which ends with ctx, with the session, or at its limit.
func (s *Session) ask(ctx context.Context, request func(context.Context) error) error {
	return replaced(inTime(s.within(ctx, s.limit(), request)))
}

func (s *Session) within(ctx context.Context, limit time.Duration, request func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if ctx != s.life {
		defer context.AfterFunc(s.life, cancel)()
	}
	err := request(limited)
	if err == nil {
		return nil
	}
	if errors.Is(err, driver.ErrSessionEnded) { // Beat returns the exact reason
		if _, why := s.store.Beat(limited); errors.Is(why, driver.ErrSessionEnded) {
			err = why
		}
	}
	return s.endIfGone(err)
}

func (s *Session) endIfGone(err error) error {
	if errors.Is(err, driver.ErrSessionEnded) {
		s.lease.End(err)
	}
	return err
}

// group counts what Close waits for. The zero group is open.
type group struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

func (g *group) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.all.Add(1)
	}
	return !g.closed
}

func (g *group) Go(f func()) bool {
	open := g.enter()
	if open {
		go func() {
			defer g.all.Done()
			f()
		}()
	}
	return open
}

func (g *group) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.all.Wait()
}

// patience is how long a ctx must still last to be able to interrupt a request.
// A request that is unanswered for that long would soon have met its own limit.
const patience = time.Second

// call runs f for a caller. If ctx ends first, call returns, but f goes on,
// because nobody would know what an interrupted request has done, and because
// client libraries close the connection of an interrupted request. The result
// of f then goes to late. But a ctx that is not about to end may interrupt f,
// which saves a goroutine: up to a third of a free lock's cost.
func call[T any](ctx context.Context, s *Session, f func(context.Context) (T, error), late func(T, error)) (v T, err error) {
	if err := s.enter(ctx); err != nil {
		return v, err
	}
	if !s.group.enter() {
		<-s.slots
		return v, s.lease.Err()
	}
	if end, ok := ctx.Deadline(); ctx.Done() == nil || ok && time.Until(end) > patience {
		defer func() { <-s.slots; s.group.all.Done() }()
		return f(ctx)
	}
	type result struct {
		v   T
		err error
	}
	results, left := make(chan result), make(chan struct{})
	go func() {
		defer s.group.all.Done()
		v, err := f(s.life)
		<-s.slots
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
		return v, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
}

func (s *Session) enter(ctx context.Context) error {
	if err := cmp.Or(s.lease.Err(), ctx.Err()); err != nil {
		return err
	}
	select {
	case s.slots <- struct{}{}:
		return s.admit(ctx)
	case <-s.lease.Done():
		return s.lease.Err()
	case <-ctx.Done():
		return fmt.Errorf("%w: all %d requests that the session may make at once were under way: %s: %w",
			driver.ErrUnavailable, cap(s.slots), cmp.Or(s.config.Busy, "make fewer calls at once"), ctx.Err())
	}
}

// admit waits until the store has room. The request itself must not wait for
// that, because it would keep its slot even after its caller gave up.
func (s *Session) admit(ctx context.Context) error {
	if s.admitter == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	err := s.admitter.Admit(ctx)
	if err = cmp.Or(s.lease.Err(), err); err != nil {
		<-s.slots
	}
	return err
}

// drop ignores a late result, which needs no clean-up: see call.
func drop[T any](T, error) {}

// List implements driver.Session.
func (s *Session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue)); err != nil {
		return nil, s.explain("list", queue, err)
	}
	now, err := call(ctx, s, func(ctx context.Context) (Snapshot, error) { return s.read(ctx, Query{Queue: queue}) }, drop)
	if err = s.explain("list", queue, err); err != nil {
		return nil, err
	}
	return contenders(now.Nodes), nil
}

func (s *Session) change(ctx context.Context, what string, c Change, f func(context.Context) (Result, error)) (Result, error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(c.Queue)); err != nil {
		return Result{}, s.explain(what, c.Queue, err)
	}
	r, err := call(ctx, s, f, drop)
	return r, s.explain(what, c.Queue, err)
}

func (s *Session) do(ctx context.Context, c Change) (r Result, err error) {
	defer s.stop(s.notices.record(c.Queue))
	a := s.asking(Query{Queue: c.Queue})
	err = s.ask(ctx, func(ctx context.Context) error {
		r, err = s.store.Do(ctx, c)
		return err
	})
	if errors.Is(err, driver.ErrGone) && c.Kind != Remove {
		err = s.confirmGone(ctx, c, err)
	}
	if err == nil && r.Version != 0 && s.watches.Has(c.Queue) {
		s.answered(a, r.Snapshot)
	}
	return r, err
}

// confirmGone returns err unless the session's own node is in the queue after
// all: a store may not find a node while renaming it.
func (s *Session) confirmGone(ctx context.Context, c Change, err error) error {
	now, failed := s.read(ctx, Query{Queue: c.Queue})
	if failed != nil {
		return failed
	}
	own := func(n Node) bool { return n.Token == c.Place.Token && (n.Owner == "" || n.Owner == s.config.ID) }
	if slices.ContainsFunc(now.Nodes, own) {
		return fmt.Errorf("%w: the store has not found a node that is there", driver.ErrUnavailable)
	}
	return err
}

// Delete implements driver.Session. If the outcome is unknown, it tries once
// more, because another connection may still work.
func (s *Session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	c := Change{Kind: Delete, Queue: queue, Place: p, Cause: why}
	_, err := s.change(ctx, "delete "+p.Name, c, func(ctx context.Context) (Result, error) {
		r, err := s.do(ctx, c)
		if unknownOutcome(err) {
			if r, err = s.do(ctx, c); errors.Is(err, driver.ErrGone) {
				err = nil // the first Delete has removed the node
			}
		}
		if err == nil {
			s.left(c, r)
		} else if errors.Is(err, driver.ErrGone) {
			s.watches.Gone(queue, p.Node, driver.Changed)
		}
		return r, err
	})
	return err
}

// Replace implements driver.Session.
func (s *Session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	what := "replace " + p.Name
	if err := driver.CheckPrefix(prefix); err != nil {
		return driver.Place{}, s.explain(what, queue, err)
	}
	c := Change{Kind: Replace, Queue: queue, Place: p, Prefix: prefix}
	now := p
	now.Name = driver.FormatName(prefix, p.Seq)
	_, err := s.change(ctx, what, c, func(ctx context.Context) (r Result, err error) {
		if r, err = s.do(ctx, c); err == nil && cmp.Or(r.Place.Name, p.Name) != now.Name {
			s.left(c, r)
		}
		return r, err
	})
	if err != nil {
		return driver.Place{}, err
	}
	return now, nil
}

// left tells the session's own watches that the session has removed or renamed
// a node. After a release, waiters wait for the store's notice. In a store
// without notices the session polls at once, unless r has the queue's nodes.
func (s *Session) left(c Change, r Result) {
	was := r.Place
	if was.Name == "" {
		was = c.Place
	}
	if c.Cause == driver.Released {
		s.watches.Left(c.Queue, was.Node)
	} else {
		s.watches.Gone(c.Queue, was.Node, driver.Changed)
	}
	if r.Version == 0 && s.watches.Has(c.Queue) && (s.notifier == nil || !s.notifier.Listening(c.Queue, false)) {
		s.looks.now(c.Queue)
	}
}

// Done implements driver.Session.
func (s *Session) Done() <-chan struct{} { return s.lease.Done() }

// Err implements driver.Session.
func (s *Session) Err() error { return s.lease.Err() }

// Lease returns the session's lease, for tests, and for a driver that has begun
// the session before Connect: see driver.Lease.CountFrom.
func (s *Session) Lease() *driver.Lease { return s.lease }

// Store returns the session's store, for driver.Checker and tests.
func (s *Session) Store() Store { return s.store }

const closeWithin = 2 * time.Second

// Close implements driver.Session. It ends the lease first and then the session
// in the store, even if the lease had already run out.
func (s *Session) Close() error {
	s.lease.End(fmt.Errorf("%s: closed", s.config.Name))
	s.group.Close()
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := inTime(s.store.End(ctx)); err != nil && !errors.Is(err, driver.ErrSessionEnded) {
		if !errors.Is(err, driver.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return fmt.Errorf("%s: close: the nodes stay until the session times out: %w", s.config.Name, err)
	}
	s.closed = true
	return nil
}
