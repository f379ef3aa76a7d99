//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

type session struct {
	connector
	id       string
	lease    *driver.Lease
	finished chan struct{} // closed by run

	closing sync.Mutex // one Close at a time
	gone    bool       // the store has dropped the session
	mu      sync.Mutex
	watches map[*watch]bool // nil once the session has ended
}

var errExpired = errors.New("the store has dropped the session")

// change is update for what the session asks for in a queue.
func (s *session) change(ctx context.Context, what, queue string, f func(*state) error) error {
	return s.ask(what, queue, func() error { return s.store.update(ctx, s.alive(f)) })
}

// see shows f the state. It needs no lock, because the file is replaced as a whole.
func (s *session) see(ctx context.Context, what, queue string, f func(*state) error) error {
	return s.ask(what, queue, func() error {
		st, err := s.store.read()
		if err = errors.Join(ctx.Err(), err); err != nil {
			return err
		}
		return s.alive(f)(st)
	})
}

// alive is f for a store that knows the session.
func (s *session) alive(f func(*state) error) func(*state) error {
	return func(st *state) error {
		if _, alive := st.Sessions[s.id]; !alive {
			return errExpired
		}
		return f(st)
	}
}

// ask makes a request while the session lives, and explains its error.
func (s *session) ask(what, queue string, request func() error) error {
	if err := s.lease.Err(); err != nil {
		return err
	}
	err := driver.CheckQueue(queue)
	if err == nil {
		err = request()
	}
	if errors.Is(err, errExpired) || errors.Is(err, errDoubt) {
		s.lease.End(err)
	}
	if ended := s.lease.Err(); ended != nil {
		return ended // whatever was done goes with the session
	}
	if err != nil {
		return fmt.Errorf("exampledriver: %s in %q: %w", what, queue, err)
	}
	return nil
}

func (s *session) Create(ctx context.Context, queue, prefix string, data []byte) (p driver.Place, err error) {
	err = s.change(ctx, "create", queue, func(st *state) error {
		if err := driver.CheckPrefix(prefix); err != nil {
			return err
		}
		st.Last++
		st.Version++
		p = driver.Place{
			Node:  driver.Node{Name: driver.FormatName(prefix, st.Last), Seq: st.Last},
			Token: st.Last,
			Alone: len(contenders(st.Queues[queue])) == 0,
		}
		st.Queues[queue] = append(st.Queues[queue], node{p.Name, p.Seq, s.id, string(data)})
		return nil
	})
	return p, err
}

func (s *session) List(ctx context.Context, queue string) (nodes []driver.Node, err error) {
	err = s.see(ctx, "list", queue, func(st *state) error {
		nodes = contenders(st.Queues[queue])
		return nil
	})
	return nodes, err
}

// contenders leaves out what somebody else may have put into the queue.
func contenders(nodes []node) (found []driver.Node) {
	for _, n := range nodes {
		if _, _, sequenced := driver.ParseName(n.Name); sequenced {
			found = append(found, driver.Node{Name: n.Name, Seq: n.Seq})
		}
	}
	return found
}

func (s *session) Delete(ctx context.Context, queue string, p driver.Place) error {
	return s.change(ctx, "delete "+p.Name, queue, func(st *state) error {
		if st.remove(func(q string, n node) bool { return q == queue && n.Owner == s.id && n.Seq == p.Seq }) == 0 {
			return driver.ErrGone
		}
		return nil
	})
}

// Replace makes the session a driver.Replacer.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	err := s.change(ctx, "replace "+p.Name, queue, func(st *state) error {
		if err := driver.CheckPrefix(prefix); err != nil {
			return err
		}
		nodes := st.Queues[queue]
		i := slices.IndexFunc(nodes, func(n node) bool { return n.Owner == s.id && n.Seq == p.Seq })
		if i < 0 {
			return driver.ErrGone
		}
		p.Name = driver.FormatName(prefix, p.Seq)
		nodes[i].Name = p.Name
		st.Version++
		return nil
	})
	return p, err
}

func (s *session) Done() <-chan struct{} { return s.lease.Done() }
func (s *session) Err() error            { return s.lease.Err() }

// Describe makes the session a driver.Describer.
func (s *session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: s.id, Server: s.store.dir, Timeout: s.timeout}
}

// Close ends the session here first and in the store then, also where its lease
// has run out already.
func (s *session) Close() error {
	s.lease.End(errors.New("exampledriver: closed"))
	<-s.finished
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.gone {
		return nil
	}
	err := s.leave()
	s.gone = err == nil
	return err
}

func (s *session) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := s.store.update(ctx, func(st *state) error {
		delete(st.Sessions, s.id)
		st.remove(func(_ string, n node) bool { return n.Owner == s.id })
		return nil
	})
	if err != nil {
		return fmt.Errorf("exampledriver: close: %w: the nodes go when the session times out: %w", driver.ErrUnavailable, err)
	}
	_ = os.Remove(s.store.path(s.id)) // it may be gone already
	return nil
}

// run keeps the session alive and looks after its watches until it ends.
func (s *session) run() {
	defer close(s.finished)
	var heart sync.WaitGroup
	defer heart.Wait()
	heart.Go(func() { s.lease.Keep(s.heartbeat) })
	defer s.endWatches()
	tidy, look := time.NewTicker(s.timeout/8), time.NewTicker(poll)
	defer tidy.Stop()
	defer look.Stop()
	for {
		select {
		case <-s.lease.Done():
			return
		case <-tidy.C:
			s.tidy()
		case <-look.C:
			s.look()
		}
	}
}

// heartbeat renews the lease. If it fails, a later one may succeed, or the lease
// runs out. It needs no lock, so no other request can hold it up. The file gets
// the time at which the request arrives: heartbeats overlap, and a time that is
// sent along could replace a later one.
func (s *session) heartbeat(context.Context) (counted bool) {
	f, err := os.OpenFile(s.store.path(s.id), os.O_WRONLY|os.O_TRUNC, 0)
	return err == nil && f.Close() == nil
}

// tidy drops the sessions that are silent, as every update does, for a queue in
// which nothing else happens.
func (s *session) tidy() {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout/16)
	defer cancel()
	_ = s.store.update(ctx, func(*state) error { return nil }) // or else the next time
}
