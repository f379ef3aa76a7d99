package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/calls"
	"github.com/dlock-go/dlock/driver/watches"
)

// Session implements [driver.Session] on a [Store].
type Session struct {
	name    string // name of the driver's package, for messages
	store   Store
	id      string
	timeout time.Duration
	lease   *driver.Lease
	ended   context.Context // ends with the lease
	watches watches.Set
	calls   calls.Gate // calls in flight and goroutines of the session

	begun  Begun         // set by Connect
	graced time.Duration // how long Connect waited for earlier leases to end

	generation atomic.Int64
	orphans    orphans
	notices    notices
	looks      looks

	mu      sync.Mutex
	doubts  map[nodeKey]bool // nodes that an unanswered Delete may have removed
	closing sync.Mutex       // held during Close
	closed  bool             // true once the database has ended the session
}

var (
	_ driver.Session   = (*Session)(nil)
	_ driver.Inspector = (*Session)(nil)
)

// Connect begins a session. Its errors start with name, the name of the
// driver's package. The session owns the store, which is closed by the
// session's Close or if Connect fails.
func Connect(ctx context.Context, name string, store Store, timeout time.Duration) (*Session, error) {
	s := &Session{name: name, store: store, id: rand.Text(), timeout: timeout,
		lease: driver.NewLease(timeout, 0), doubts: make(map[nodeKey]bool)}
	s.ended, _ = s.lease.Context() // needs no cancel, because the end of the lease frees it
	s.generation.Store(1)
	s.looks.init()
	s.listen()
	err := store.Open(ctx)
	if err == nil {
		s.tidyOnce(ctx)
		err = s.begin(ctx)
	}
	err = ifBusy(ctx, err)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // the driver's timeout, not the caller's deadline
		err = fmt.Errorf("%w: %s", driver.ErrUnavailable, strings.TrimPrefix(err.Error(), driver.ErrUnavailable.Error()+": "))
	}
	if err != nil {
		s.lease.End(err)
		_ = store.Close()
		return nil, fmt.Errorf("%s: connect: %w", name, err)
	}
	s.calls.Go(func() { s.lease.Run(s.beat) })
	s.calls.Go(s.look)
	s.calls.Go(s.expire)
	s.calls.Go(s.tidy)
	return s, nil
}

// beat sends a heartbeat. If it is not answered, a firewall may have dropped
// the open connections, so beat closes the silent ones before later heartbeats
// pick them.
func (s *Session) beat(ctx context.Context) error {
	next, err := s.store.Beat(ctx, s.id)
	if err == nil {
		// The server may report success for a heartbeat that was cancelled
		// before it was replicated.
		err = ctx.Err()
	}
	if errors.Is(err, ErrUnknownSession) {
		s.lease.End(err)
	}
	if err == nil && next < s.timeout/8 {
		s.expireIn(max(next, 0))
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		ctx, cancel := context.WithTimeout(s.ended, s.timeout/16) // short, because the next heartbeat is due soon
		defer cancel()
		s.store.CloseSilent(ctx)
	}
	return err
}

// Done implements driver.Session.
func (s *Session) Done() <-chan struct{} { return s.lease.Done() }

// Err implements driver.Session.
func (s *Session) Err() error { return s.lease.Err() }

// Lease returns the session's lease. It is for tests.
func (s *Session) Lease() *driver.Lease { return s.lease }

// ID returns the session's id in the database.
func (s *Session) ID() string { return s.id }

// Store returns the session's store. It is for Check and tests.
func (s *Session) Store() Store { return s.store }

// Describe implements driver.Inspector.
func (s *Session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.id, Server: s.store.Server(), Timeout: s.timeout, Generation: s.begun.Generation, Grace: s.graced}
}

// OnHeartbeat implements driver.Inspector.
func (s *Session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.lease.OnRenew(f)
	return true
}

// nodeKey identifies a node of the session. Nodes of different queues may have
// the same token.
type nodeKey struct {
	queue string
	token int64
}

// Limit returns the timeout of one request, because a connection may go silent
// while heartbeats succeed on others. The timeout is at least two seconds, so
// that even sessions with a short timeout can wait for row locks.
func Limit(timeout time.Duration) time.Duration { return max(timeout/4, 2*time.Second) }

// ConnectLimit returns the timeout for opening a connection. database/sql opens
// some connections without a caller's context. Without a timeout, each of them
// could occupy a slot of the pool forever.
func ConnectLimit(timeout time.Duration) time.Duration { return max(timeout/2, 5*time.Second) }

func (s *Session) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, Limit(s.timeout))
}

// change calls f with the current generation of the session. It retries if the
// database refused the change because a concurrent Cancel raised the
// generation.
func (s *Session) change(ctx context.Context, f func(context.Context, Op) error) error {
	for {
		op := Op{s.id, s.generation.Load()}
		ctx, cancel := s.limit(ctx)
		err := f(ctx, op)
		cancel()
		if !errors.Is(err, ErrStale) {
			return err
		}
		if s.generation.Load() == op.Generation {
			return fmt.Errorf("another program has raised the generation of the session: %w", err)
		}
	}
}

// Create implements driver.Session.
func (s *Session) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if err := driver.CheckPrefix(n.Prefix); err != nil && s.lease.Err() == nil {
		return driver.Joined{}, fmt.Errorf("%s: create in %q: %w", s.name, queue, err)
	}
	n.Data = bytes.Clone(n.Data) // because the request may outlive the call
	drop := func(j driver.Joined) {
		j.Watch.Stop()
		s.orphan(n.Data)
	}
	return askQueue(ctx, s, "create", queue, drop, func(ctx context.Context) (driver.Joined, error) {
		return s.create(ctx, queue, n)
	})
}

func (s *Session) create(ctx context.Context, queue string, n driver.NodeSpec) (j driver.Joined, err error) {
	line := s.line(queue)
	done := s.notices.record(queue, line)
	defer done()
	var nodes []Row
	err = s.change(ctx, func(ctx context.Context, op Op) (err error) {
		j.Token, nodes, err = s.store.Create(ctx, op, queue, n.Prefix, n.Data)
		return err
	})
	if err != nil {
		if unknownOutcome(err) {
			s.orphan(n.Data)
		}
		return j, err
	}
	j.Name, j.Seq = driver.FormatName(n.Prefix, j.Token), j.Token
	if i := slices.IndexFunc(nodes, func(r Row) bool { return r.Token == j.Token && r.Created != 0 }); i >= 0 {
		j.Created = time.UnixMicro(nodes[i].Created)
	}
	all := contenders(nodes)
	own := slices.Index(all, j.Node)
	if j.Known = own >= 0; j.Known {
		j.Ahead, j.Behind = all[:own], own < len(all)-1
		j.Watch = s.armCreated(ctx, queue, line, j, n.Predecessor)
	}
	return j, nil
}

// unknownOutcome reports whether a change may have taken effect, or may still
// do so, despite err.
func unknownOutcome(err error) bool {
	return err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrStale) &&
		!errors.Is(err, ErrUnknownSession) && !errors.Is(err, driver.ErrGone)
}

// contenders returns the nodes that have a sequence number, ordered by it.
func contenders(rows []Row) []driver.Node {
	nodes := make([]driver.Node, 0, len(rows))
	for _, r := range rows {
		if _, seq, ok := driver.ParseName(r.Name); ok {
			nodes = append(nodes, driver.Node{Name: r.Name, Seq: seq})
		}
	}
	slices.SortStableFunc(nodes, func(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) })
	return nodes
}

// List implements driver.Session.
func (s *Session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	return askQueue(ctx, s, "list", queue, nil, func(ctx context.Context) ([]driver.Node, error) {
		ctx, cancel := s.limit(ctx)
		defer cancel()
		rows, err := s.store.List(ctx, s.id, queue)
		return contenders(rows), err
	})
}

// Delete implements [driver.Session]. If the outcome is unknown, it tries once
// more, because the other connections often still work.
func (s *Session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	node := nodeKey{queue, p.Token}
	drop := func(struct{}) { s.doubt(node) }
	_, err := askQueue(ctx, s, "delete "+p.Name, queue, drop, func(ctx context.Context) (none struct{}, err error) {
		for range 2 {
			err = s.change(ctx, func(ctx context.Context, op Op) error {
				return s.store.Delete(ctx, op, queue, p.Token, why)
			})
			if !unknownOutcome(err) {
				break
			}
			s.doubt(node)
		}
		if errors.Is(err, driver.ErrGone) && s.doubted(node) {
			return none, nil
		}
		return none, err
	})
	return err
}

// doubt records that an unanswered Delete may have removed the node.
func (s *Session) doubt(node nodeKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts[node] = true
}

// doubted reports whether doubt was called with this node, and forgets it.
func (s *Session) doubted(node nodeKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(s.doubts, node)
	return s.doubts[node]
}

// Replace implements driver.Session.
func (s *Session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	err := s.changeQueue(ctx, "replace "+p.Name, queue, func(ctx context.Context, op Op) error {
		if err := driver.CheckPrefix(prefix); err != nil {
			return err
		}
		return s.store.Replace(ctx, op, queue, p.Token, prefix)
	})
	if err != nil {
		return driver.Place{}, err
	}
	p.Name = driver.FormatName(prefix, p.Token)
	return p, nil
}

// Read implements driver.Inspector.
func (s *Session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	return askQueue(ctx, s, "read "+name, queue, nil, func(ctx context.Context) (driver.NodeInfo, error) {
		ctx, cancel := s.limit(ctx)
		defer cancel()
		info, err := s.store.Read(ctx, s.id, queue, name)
		info.Name = name
		_, info.Seq, _ = driver.ParseName(name)
		info.Foreign = info.Owner != s.id
		return info, err
	})
}

// Remove implements driver.Inspector.
func (s *Session) Remove(ctx context.Context, queue string, p driver.Place) error {
	return s.changeQueue(ctx, "remove "+p.Name, queue, func(ctx context.Context, op Op) error {
		return s.store.Remove(ctx, op, queue, p.Name, p.Token)
	})
}

// SetValue implements driver.Inspector.
func (s *Session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	value = append([]byte{}, value...)
	return s.changeQueue(ctx, "set value", queue, func(ctx context.Context, op Op) error {
		if err := driver.CheckValue(value); err != nil {
			return err
		}
		return s.store.SetValue(ctx, op, queue, p.Token, value)
	})
}

// Value implements driver.Inspector.
func (s *Session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	type stored struct {
		value []byte
		token int64
	}
	v, err := askQueue(ctx, s, "value", queue, nil, func(ctx context.Context) (v stored, err error) {
		ctx, cancel := s.limit(ctx)
		defer cancel()
		v.value, v.token, err = s.store.Value(ctx, s.id, queue)
		return v, err
	})
	if v.token == 0 {
		return nil, 0, err
	}
	return v.value, v.token, nil
}

// Walk implements driver.Inspector.
func (s *Session) Walk(ctx context.Context, prefix string) ([]string, error) {
	return ask(ctx, s, "walk", prefix, nil, func(ctx context.Context) ([]string, error) {
		if prefix != "" {
			if err := driver.CheckQueue(prefix); err != nil {
				return nil, err
			}
		}
		ctx, cancel := s.limit(ctx)
		defer cancel()
		queues, err := s.store.Walk(ctx, s.id, prefix)
		slices.Sort(queues)
		return queues, err
	})
}

// closeWithin limits how long Close takes when the database is unreachable.
const closeWithin = 2 * time.Second

// Close implements [driver.Session]. It ends the lease first and then the
// session in the database, even if the lease has already expired.
func (s *Session) Close() error {
	s.lease.End(fmt.Errorf("%s: closed", s.name))
	s.calls.Close()
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if err := s.store.End(ctx, s.id); err != nil {
		_ = s.store.Close() // closes connections that End may have reopened
		if !errors.Is(err, driver.ErrUnavailable) {
			err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		return fmt.Errorf("%s: close: the nodes stay until the session times out: %w", s.name, err)
	}
	s.closed = true
	_ = s.store.Close() // an error does no harm, because the session has ended
	return nil
}
