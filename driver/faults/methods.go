package faults

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Create implements driver.Session.
func (s *session) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Data = bytes.Clone(n.Data) // the caller may reuse the slice
	got, err := send(ctx, s, order[driver.Joined]{
		Request: Request{Op: OpCreate, Queue: queue, Prefix: n.Prefix},
		do: func(ctx context.Context) (driver.Joined, error) {
			return s.inner.Create(ctx, queue, n)
		},
		place: func(j driver.Joined) driver.Place { return j.Place },
		undo: func(j driver.Joined) {
			j.Watch.Stop()
			s.cleanUp(queue, j.Place)
		},
	})
	if err != nil {
		return driver.Joined{}, err
	}
	j := s.withoutDropped(got.answer, got.onReply)
	j.Watch = s.forward(j.Watch, got.request, got.onRequest.EndWatchAfter)
	return j, nil
}

func (s *session) withoutDropped(j driver.Joined, f Fault) driver.Joined {
	if f.DropAhead && j.Known {
		j.Known, j.Ahead = false, nil
		s.connector.tally.aheadsDropped.Add(1)
	}
	if f.DropWatch && j.Watch.C != nil {
		j.Watch.Stop()
		j.Watch = driver.Watch{}
		s.connector.tally.watchesDropped.Add(1)
	}
	return j
}

// cleanUp removes the node of a Create that has returned an error, as rule 4 of
// package driver demands.
func (s *session) cleanUp(queue string, p driver.Place) {
	for wait := time.Millisecond; s.Err() == nil; wait = min(2*wait, time.Second) {
		o := s.removal(OpCleanUp, queue, p, driver.Changed)
		o.Request = s.numbered(o.Request)
		_, err := carry(s, o)
		if err == nil || errors.Is(err, driver.ErrGone) || !pause(s.life, wait) {
			return
		}
	}
}

type nothing struct{}

func (s *session) removal(op Op, queue string, p driver.Place, why driver.Cause) order[nothing] {
	return order[nothing]{
		Request: Request{Op: op, Queue: queue, Place: p, Cause: why},
		do: func(ctx context.Context) (nothing, error) {
			return nothing{}, s.inner.Delete(ctx, queue, p, why)
		},
	}
}

// Delete implements driver.Session.
func (s *session) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	_, err := send(ctx, s, s.removal(OpDelete, queue, p, why))
	return err
}

// List implements driver.Session.
func (s *session) List(ctx context.Context, queue string) ([]driver.Node, error) {
	got, err := send(ctx, s, order[[]driver.Node]{
		Request: Request{Op: OpList, Queue: queue},
		do: func(ctx context.Context) ([]driver.Node, error) {
			return s.inner.List(ctx, queue)
		},
	})
	return got.answer, err
}

// Watch implements driver.Session.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	return s.watch(ctx, Request{Op: OpWatch, Queue: queue, Place: p},
		func(ctx context.Context) (driver.Watch, error) { return s.inner.Watch(ctx, queue, p, ahead...) })
}

// WatchQueue implements driver.Session.
func (s *session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	return s.watch(ctx, Request{Op: OpWatchQueue, Queue: queue},
		func(ctx context.Context) (driver.Watch, error) { return s.inner.WatchQueue(ctx, queue) })
}

func (s *session) watch(
	ctx context.Context, r Request, arm func(context.Context) (driver.Watch, error),
) (driver.Watch, error) {
	got, err := send(ctx, s, order[driver.Watch]{Request: r, do: arm, undo: driver.Watch.Stop})
	if err != nil {
		return driver.Watch{}, err
	}
	return s.forward(got.answer, got.request, got.onRequest.EndWatchAfter), nil
}

// Replace implements driver.Session.
func (s *session) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	got, err := send(ctx, s, order[driver.Place]{
		Request: Request{Op: OpReplace, Queue: queue, Place: p, Prefix: prefix},
		do: func(ctx context.Context) (driver.Place, error) {
			return s.inner.Replace(ctx, queue, p, prefix)
		},
		place: func(p driver.Place) driver.Place { return p },
	})
	return got.answer, err
}

func inspect[T any](ctx context.Context, s *session, r Request, ask func(context.Context, driver.Inspector) (T, error)) (T, error) {
	inner, ok := s.inner.(driver.Inspector)
	if !ok { // no request, so no fault
		return *new(T), errors.ErrUnsupported
	}
	got, err := send(ctx, s, order[T]{
		Request: r,
		do:      func(ctx context.Context) (T, error) { return ask(ctx, inner) },
	})
	return got.answer, err
}

// Read implements driver.Inspector.
func (s *session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	r := Request{Op: OpRead, Queue: queue, Place: driver.Place{Node: driver.Node{Name: name}}}
	return inspect(ctx, s, r, func(ctx context.Context, i driver.Inspector) (driver.NodeInfo, error) {
		return i.Read(ctx, queue, name)
	})
}

// Walk implements driver.Inspector.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	r := Request{Op: OpWalk, Queue: prefix}
	return inspect(ctx, s, r, func(ctx context.Context, i driver.Inspector) ([]string, error) {
		return i.Walk(ctx, prefix)
	})
}

// Remove implements driver.Inspector.
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	r := Request{Op: OpRemove, Queue: queue, Place: p}
	_, err := inspect(ctx, s, r, func(ctx context.Context, i driver.Inspector) (nothing, error) {
		return nothing{}, i.Remove(ctx, queue, p)
	})
	return err
}

// SetValue implements driver.Inspector.
func (s *session) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	value = bytes.Clone(value) // the caller may reuse the slice
	r := Request{Op: OpSetValue, Queue: queue, Place: p}
	_, err := inspect(ctx, s, r, func(ctx context.Context, i driver.Inspector) (nothing, error) {
		return nothing{}, i.SetValue(ctx, queue, p, value)
	})
	return err
}

type storedValue struct {
	value []byte
	token int64
}

// Value implements driver.Inspector.
func (s *session) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	r := Request{Op: OpValue, Queue: queue}
	got, err := inspect(ctx, s, r, func(ctx context.Context, i driver.Inspector) (v storedValue, err error) {
		v.value, v.token, err = i.Value(ctx, queue)
		return v, err
	})
	return got.value, got.token, err
}
