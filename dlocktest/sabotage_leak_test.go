package dlocktest

import (
	"context"
	"os"
	"sync"

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

// heldOpen keeps what is open from the garbage collector, which would close it.
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
