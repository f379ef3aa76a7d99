package simulation

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// gate is where requests and answers wait until the run lets them pass.
type gate struct {
	store *memdriver.Store

	mu      sync.Mutex
	waiting []*passage
	queues  map[string]map[nodeID]int64 // tokens of the nodes made, by queue
}

type nodeID struct {
	name  string
	epoch int64
}

// passage is a request or an answer that waits.
type passage struct {
	session *session
	number  int // among those of its session
	what    string
	pass    func()
}

// fate is what becomes of a request.
type fate int

const (
	delivered fate = iota
	requestLost
	answerLost
	duplicated
)

// connector makes sessions for one client.
type connector struct {
	gate   *gate
	client int
	fate   func() fate

	mu       sync.Mutex
	sessions int
	current  *session
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	in, err := c.gate.store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions++
	c.current = &session{Session: in, gate: c.gate, fate: c.fate, name: fmt.Sprintf("c%d.%d", c.client, c.sessions)}
	return c.current, nil
}

func (c *connector) session() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// session is a memdriver session whose requests and answers, and ends of watches, stop at the gate.
type session struct {
	driver.Session
	gate *gate
	fate func() fate
	name string
	cut  atomic.Bool // nothing passes

	mu sync.Mutex
	n  int
}

func (s *session) wait(what string, pass func()) {
	s.mu.Lock()
	s.n++
	p := &passage{session: s, number: s.n, what: what, pass: pass}
	s.mu.Unlock()
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	s.gate.waiting = append(s.gate.waiting, p)
}

var errLost = fmt.Errorf("%w: the answer was lost", driver.ErrUnavailable)

// call takes a request through the gate and its answer back. late gets a result of which the
// caller does not learn, because the answer was lost or he has stopped waiting; it may be nil.
func call[T any](ctx context.Context, s *session, what string, request func() (T, error), late func(T)) (T, error) {
	var none T
	if err := s.Err(); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	var settled atomic.Bool
	orphan := func(v T, err error) {
		if err == nil && late != nil {
			late(v)
		}
	}
	s.wait(what, func() {
		var a answer
		f := s.fate()
		if f == requestLost {
			a.err = errLost
		} else {
			a.v, a.err = request()
			if f == duplicated {
				_, _ = request()
			}
		}
		if f == answerLost {
			orphan(a.v, a.err)
			a = answer{err: errLost}
		}
		s.wait(what+" answered", func() {
			if settled.CompareAndSwap(false, true) {
				answers <- a
			} else {
				orphan(a.v, a.err)
			}
		})
	})
	var err error
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.Done():
		err = s.Err()
	}
	if settled.CompareAndSwap(false, true) {
		return none, err
	}
	a := <-answers
	return a.v, a.err
}

func (s *session) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	done := false // a Create is not sent twice by a network: the connection numbers its requests
	return call(ctx, s, "create "+queue+" "+prefix, func() (driver.Place, error) {
		if done {
			return driver.Place{}, nil
		}
		done = true
		p, err := s.Session.Create(context.Background(), queue, prefix, data)
		if err == nil {
			s.gate.made(queue, p)
		}
		return p, err
	}, func(p driver.Place) { s.cleanUp(queue, p) })
}

// cleanUp is the driver's part of rule 4: it removes what a Create without an answer has left.
func (s *session) cleanUp(queue string, p driver.Place) {
	s.wait("clean up "+p.Name, func() { _ = s.Session.Delete(context.Background(), queue, p) })
}

func (s *session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	return call(ctx, s, "list "+queue, func() ([]driver.Node, error) {
		return s.Session.List(context.Background(), queue)
	}, nil)
}

func (s *session) Delete(ctx context.Context, queue string, p driver.Place) error {
	_, err := call(ctx, s, "delete "+queue+" "+p.Name, func() (struct{}, error) {
		return struct{}{}, s.Session.Delete(context.Background(), queue, p)
	}, nil)
	return err
}

func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	return call(ctx, s, "replace "+queue+" "+p.Name, func() (driver.Place, error) {
		q, err := s.Session.(driver.Replacer).Replace(context.Background(), queue, p, prefix)
		if err == nil {
			s.gate.made(queue, q)
		}
		return q, err
	}, nil)
}

func (s *session) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := call(ctx, s, "watch "+queue+" "+name, func() (<-chan driver.Cause, error) {
		return s.Session.Watch(ctx, queue, name)
	}, nil)
	if err != nil {
		return nil, err
	}
	out := make(chan driver.Cause)
	go func() {
		select {
		case <-in:
		case <-ctx.Done():
		}
		switch {
		case s.Err() != nil:
			close(out)
		case ctx.Err() == nil:
			s.wait("end of watch "+queue+" "+name, func() { close(out) })
		}
	}()
	return out, nil
}

// made takes down the token of a node, so that one which an operator removes can be told.
func (g *gate) made(queue string, p driver.Place) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.queues == nil {
		g.queues = make(map[string]map[nodeID]int64)
	}
	if g.queues[queue] == nil {
		g.queues[queue] = make(map[nodeID]int64)
	}
	g.queues[queue][nodeID{p.Name, p.Epoch}] = p.Token
}

func (g *gate) token(queue string, n driver.Node) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queues[queue][nodeID{n.Name, n.Epoch}]
}
