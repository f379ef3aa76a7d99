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
	n.Data = bytes.Clone(n.Data) // the caller may change its data after Create has returned
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

// cleanUp removes the node of a Create that has returned an error, because such
// a Create leaves no node (rule 4 of package driver). It retries until the
// store confirms that the node is gone, or the session ends.
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

// Read implements driver.NodeReader.
func (s *session) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	if _, ok := s.inner.(driver.NodeReader); !ok { // no request to inject a fault into
		return driver.NodeInfo{}, errors.ErrUnsupported
	}
	place := driver.Place{Node: driver.Node{Name: name}}
	got, err := send(ctx, s, order[driver.NodeInfo]{
		Request: Request{Op: OpRead, Queue: queue, Place: place},
		do: func(ctx context.Context) (driver.NodeInfo, error) {
			return driver.Read(ctx, s.inner, queue, name)
		},
	})
	return got.answer, err
}

// Walk implements driver.Walker.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	if _, ok := s.inner.(driver.Walker); !ok { // no request to inject a fault into
		return nil, errors.ErrUnsupported
	}
	got, err := send(ctx, s, order[[]string]{
		Request: Request{Op: OpWalk, Queue: prefix},
		do: func(ctx context.Context) ([]string, error) {
			return driver.Walk(ctx, s.inner, prefix)
		},
	})
	return got.answer, err
}

// Remove implements driver.Remover.
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	if _, ok := s.inner.(driver.Remover); !ok { // no request to inject a fault into
		return errors.ErrUnsupported
	}
	_, err := send(ctx, s, order[nothing]{
		Request: Request{Op: OpRemove, Queue: queue, Place: p},
		do: func(ctx context.Context) (nothing, error) {
			return nothing{}, driver.Remove(ctx, s.inner, queue, p)
		},
	})
	return err
}

// Keep implements driver.Keeper.
func (s *session) Keep(ctx context.Context, queue string, p driver.Place, value []byte) error {
	if _, ok := s.inner.(driver.Keeper); !ok { // no request to inject a fault into
		return errors.ErrUnsupported
	}
	value = bytes.Clone(value) // the caller may change it after Keep has returned
	_, err := send(ctx, s, order[nothing]{
		Request: Request{Op: OpKeep, Queue: queue, Place: p},
		do: func(ctx context.Context) (nothing, error) {
			return nothing{}, driver.Keep(ctx, s.inner, queue, p, value)
		},
	})
	return err
}

type kept struct {
	value []byte
	token int64
}

// Kept implements driver.Keeper.
func (s *session) Kept(ctx context.Context, queue string) (value []byte, token int64, err error) {
	if _, ok := s.inner.(driver.Keeper); !ok { // no request to inject a fault into
		return nil, 0, errors.ErrUnsupported
	}
	got, err := send(ctx, s, order[kept]{
		Request: Request{Op: OpKept, Queue: queue},
		do: func(ctx context.Context) (k kept, err error) {
			k.value, k.token, err = driver.Kept(ctx, s.inner, queue)
			return k, err
		},
	})
	return got.answer.value, got.answer.token, err
}
