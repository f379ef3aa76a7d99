package dlocktest

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var leakSabotages = []sabotage{
	{"leaves a goroutine", "a loop without an end",
		func(s base, _ *memdriver.Store) driver.Session {
			go func() { select {} }()
			return s
		}},
	{"leaves a goroutine for each watch", "waiting for the end of the session instead of Stop",
		of(func(s base) leakyWatch { return leakyWatch{s} })},
	{"leaves a goroutine with each call that is given up", "an answer sent to a channel that is not read any more",
		of(func(s base) leakyCalls { return leakyCalls{s} })},
	{"makes more nodes under load than it can remove", "a time limit for each create, and one goroutine that removes the nodes of those that took longer",
		of(func(s base) *slowUnderLoad { return &slowUnderLoad{base: s} })},
	{"lets calls in flight go on after Close", "a call that waits for a connection or repeats its request, and does not look at the session",
		of(func(s base) *goesOnAfterClose { return &goesOnAfterClose{base: s} })},
	{"leaves its connection open", "closing the session and not the client of it",
		func(s base, _ *memdriver.Store) driver.Session { return newLeavesConnection(s) }},
}

type leakyCalls struct{ base }

func (s leakyCalls) List(ctx context.Context, queue string) ([]driver.Node, error) {
	answer := make(chan []driver.Node)
	var err error
	go func() {
		nodes, listErr := s.base.List(context.WithoutCancel(ctx), queue)
		err = listErr
		answer <- nodes
	}()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case nodes := <-answer:
		return nodes, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type slowUnderLoad struct {
	base
	creating atomic.Int32
	removing sync.Mutex
}

func (s *slowUnderLoad) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	defer s.creating.Add(-1)
	busy := s.creating.Add(1) > 1
	time.Sleep(time.Millisecond)
	j, err := s.base.Create(ctx, queue, n)
	if err == nil && busy {
		go func() {
			s.removing.Lock()
			defer s.removing.Unlock()
			time.Sleep(soundTimeout)
			_ = s.base.Delete(context.Background(), queue, j.Place, driver.Changed)
		}()
		return driver.Joined{}, errReset
	}
	return j, err
}

// heldOpen references leaked files, so that the garbage collector does not
// close them.
var heldOpen sync.Map

type leavesConnection struct{ base }

func newLeavesConnection(s base) leavesConnection {
	if f, err := os.Open(os.DevNull); err == nil {
		heldOpen.Store(f, true)
	}
	return leavesConnection{s}
}

type leakyWatch struct{ base }

func (s leakyWatch) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	go func() { <-s.Done() }()
	return s.base.Watch(ctx, queue, p, ahead...)
}

// goesOnAfterClose is a session in which calls that are in flight during Close
// do not return.
type goesOnAfterClose struct {
	base
	cutState
	closing atomic.Bool
}

func (s *goesOnAfterClose) List(ctx context.Context, queue string) ([]driver.Node, error) {
	lived := s.Err() == nil
	nodes, err := s.base.List(ctx, queue)
	if lived && s.closing.Load() {
		select {
		case <-s.healed():
		case <-ctx.Done():
		}
	}
	return nodes, err
}

func (s *goesOnAfterClose) Close() error {
	s.closing.Store(true)
	return s.base.Close()
}
