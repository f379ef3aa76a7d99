//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/calls"
	"github.com/dlock-go/dlock/driver/watches"
)

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

type session struct {
	driver.Unsupported // the methods of Inspector that session lacks
	connector
	id       string
	lease    *driver.Lease
	watches  watches.Set
	calls    calls.Gate // calls in flight, and the session's goroutines
	renewing sync.Mutex // held during a renewal

	closing sync.Mutex // held during Close
	gone    bool       // whether the store has dropped the session
}

var errExpired = errors.New("the store has dropped the session")

// change makes a request that changes the state.
func (s *session) change(ctx context.Context, what, queue string, f func(*state) error) error {
	return s.ask(ctx, s.store.update, what, queue, f)
}

// view makes a request that only reads the state.
func (s *session) view(ctx context.Context, what, queue string, f func(*state) error) error {
	return s.ask(ctx, s.store.read, what, queue, f)
}

// ask makes a request in a live session. It ends the session if the outcome of
// the request is unknown, or if the store has dropped the session.
func (s *session) ask(
	ctx context.Context, do func(context.Context, func(*state) error) error, what, queue string, f func(*state) error,
) error {
	ctx, leave, open := s.calls.Enter(ctx)
	if !open {
		return s.lease.Err()
	}
	defer leave()
	err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue))
	if err == nil {
		err = do(ctx, s.ifAlive(f))
	}
	if errors.Is(err, errExpired) || errors.Is(err, errUnknownOutcome) {
		s.lease.End(err)
	}
	if ended := s.lease.Err(); ended != nil {
		return ended // err no longer matters: the store drops the session, with all of its nodes
	}
	if err != nil {
		return fmt.Errorf("exampledriver: %s in %q: %w", what, queue, err)
	}
	return nil
}

// ifAlive returns a function that calls f if the store knows the session.
func (s *session) ifAlive(f func(*state) error) func(*state) error {
	return func(st *state) error {
		if !st.Sessions[s.id] {
			return errExpired
		}
		return f(st)
	}
}

func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (j driver.Joined, err error) {
	err = s.change(ctx, "create", queue, func(st *state) error {
		if err := driver.CheckPrefix(n.Prefix); err != nil {
			return err
		}
		st.Last++
		st.Version++
		j.Name, j.Seq, j.Token = driver.FormatName(n.Prefix, st.Last), st.Last, st.Last
		st.Queues[queue] = append(st.Queues[queue], node{j.Place, s.id, string(n.Data)})
		nodes := contenders(st.Queues[queue])
		j.Known, j.Ahead = true, nodes[:slices.Index(nodes, j.Node)]
		return nil
	})
	return j, err
}

func (s *session) List(ctx context.Context, queue string) (nodes []driver.Node, err error) {
	err = s.view(ctx, "list", queue, func(st *state) error {
		nodes = contenders(st.Queues[queue])
		return nil
	})
	return nodes, err
}

// contenders returns the nodes that have a sequence, in the order of their
// sequences. It ignores all other nodes, which other programs have created.
func contenders(nodes []node) (found []driver.Node) {
	for _, n := range nodes {
		if _, seq, sequenced := driver.ParseName(n.Name); sequenced {
			found = append(found, driver.Node{Name: n.Name, Seq: seq})
		}
	}
	slices.SortStableFunc(found, func(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) })
	return found
}

func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w := s.watches.Arm(queue, p, ahead...)
	if err := s.checkWatches(ctx, queue); err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	return w, nil
}

func (s *session) WatchQueue(ctx context.Context, queue string) (w driver.Watch, err error) {
	err = s.view(ctx, "watch", queue, func(st *state) error {
		w = s.watches.ArmQueue(queue, st.Version)
		return nil
	})
	return w, err
}

// checkWatches reads a queue. It ends each watch that has lost one of its
// nodes, and each watch of the whole queue that was set at an earlier version
// of the queue.
func (s *session) checkWatches(ctx context.Context, queue string) error {
	return s.watches.Look(queue, func() (nodes []driver.Place, version any, err error) {
		err = s.view(ctx, "watch", queue, func(st *state) error {
			for _, n := range st.Queues[queue] {
				nodes = append(nodes, n.Place)
			}
			version = st.Version
			return nil
		})
		return nodes, version, err
	})
}

// interval is the time between two checks of the watches.
const interval = 5 * time.Millisecond

// poll checks the watches and drops expired sessions until the lease has ended.
func (s *session) poll() {
	defer s.watches.End()
	check, drop := time.NewTicker(interval), time.NewTicker(s.timeout/8)
	defer check.Stop()
	defer drop.Stop()
	for {
		select {
		case <-s.lease.Done():
			return
		case <-drop.C:
			s.dropExpired()
		case <-check.C:
			for _, queue := range s.watches.Queues() {
				_ = s.checkWatches(context.Background(), queue) // the next check retries
			}
		}
	}
}

func (s *session) Delete(ctx context.Context, queue string, p driver.Place, _ driver.Cause) error {
	return s.change(ctx, "delete "+p.Name, queue, func(st *state) error {
		if st.remove(func(q string, n node) bool { return q == queue && s.owns(n, p) }) == 0 {
			return driver.ErrGone
		}
		return nil
	})
}

// owns reports whether n is the session's node p. It compares tokens, which are
// unique, because the name of a node may change.
func (s *session) owns(n node, p driver.Place) bool { return n.Owner == s.id && n.Token == p.Token }

func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	err := s.change(ctx, "replace "+p.Name, queue, func(st *state) error {
		if err := driver.CheckPrefix(prefix); err != nil {
			return err
		}
		nodes := st.Queues[queue]
		i := slices.IndexFunc(nodes, func(n node) bool { return s.owns(n, p) })
		if i < 0 {
			return driver.ErrGone
		}
		nodes[i].Name = driver.FormatName(prefix, p.Seq)
		p = nodes[i].Place
		st.Version++
		return nil
	})
	return p, err
}

func (s *session) Done() <-chan struct{} { return s.lease.Done() }
func (s *session) Err() error            { return s.lease.Err() }

func (s *session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.id, Server: s.store.dir, Timeout: s.timeout}
}

func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.lease.OnRenew(f)
	return true
}

// beat sends a heartbeat. It does not wait for the store's lock, so a busy
// store does not delay it.
func (s *session) beat(context.Context) error { return s.renew() }

// renew sets the session's deadline to one session timeout from now.
func (s *session) renew() error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	end := time.Now().Add(s.timeout)
	return chtimes(s.store.path(s.id), end, end)
}

// dropExpired makes an update without a change, because every update drops the
// sessions whose deadlines have passed.
func (s *session) dropExpired() {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout/16)
	defer cancel()
	if err := s.store.update(ctx, s.ifAlive(func(*state) error { return nil })); errors.Is(err, errExpired) {
		s.lease.End(err)
	}
}

// Close ends the lease, and then the session in the store, even if the lease
// has run out before.
func (s *session) Close() error {
	s.lease.End(errors.New("exampledriver: closed"))
	s.calls.Close()
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := os.Remove(s.store.path(s.id))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = s.store.update(ctx, func(*state) error { return nil })
	}
	if err != nil {
		return fmt.Errorf("exampledriver: close: %w: the nodes stay until the session times out: %w", driver.ErrUnavailable, err)
	}
	s.gone = true
	return nil
}
