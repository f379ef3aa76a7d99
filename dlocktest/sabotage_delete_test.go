package dlocktest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var deleteSabotages = []sabotage{
	{"deletes by name", "a store where names come again, and a request that names nothing else",
		func(s base, st *memdriver.Store) driver.Session { return byNameDelete{s, st} }},
	{"takes gone for deleted", "DEL and DELETE succeed also where nothing is: the number of what was removed is not looked at",
		of(func(s base) neverGone { return neverGone{s} })},
	{"returns its store's error for what is gone", "SQL: no rows; Redis: nil",
		of(func(s base) plainGone { return plainGone{s} })},
	{"deletes everything of its session", "SQL: DELETE ... WHERE session = ?; etcd: revoking the lease",
		of(func(s base) *deletesAll { return &deletesAll{releasing: s} })},
	{"deletes the head of the queue", "Redis: ZPOPMIN, because the holder is the oldest",
		func(s base, st *memdriver.Store) driver.Session { return deletesHead{s, st} }},
	{"deletes in the background", "a pipeline whose answers nobody reads",
		of(func(s base) deletesLater { return deletesLater{s} })},
	{"takes its own deletion for somebody else's", "a client library that repeats a request whose reply was lost",
		of(func(s base) *forgetsItsDelete { return &forgetsItsDelete{releasing: s} })},
	{"hangs", "waiting for an answer without a limit",
		of(func(s base) hangs { return hangs{s} })},
}

type plainGone struct{ *releasing }

func (s plainGone) Delete(ctx context.Context, queue string, p driver.Place) error {
	err := s.releasing.Delete(ctx, queue, p)
	if errors.Is(err, driver.ErrGone) {
		return errPlain("no rows in result set")
	}
	return err
}

type deletesAll struct {
	*releasing
	places places
}

func (s *deletesAll) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.places.add(queue, p)
	return p, err
}

func (s *deletesAll) Delete(ctx context.Context, queue string, p driver.Place) error {
	err := s.releasing.Delete(ctx, queue, p)
	for _, other := range s.places.in(queue) {
		_ = s.releasing.Delete(ctx, queue, other)
	}
	return err
}

type deletesHead struct {
	*releasing
	store *memdriver.Store
}

func (s deletesHead) Delete(ctx context.Context, queue string, p driver.Place) error {
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return err
	}
	if !slices.Contains(nodes, p.Node) {
		return s.releasing.Delete(ctx, queue, p)
	}
	s.store.Faults().RemoveNode(queue, nodes[0].Name)
	return nil
}

type deletesLater struct{ *releasing }

func (s deletesLater) Delete(ctx context.Context, queue string, p driver.Place) error {
	if _, err := s.Read(ctx, queue, p.Name); err != nil {
		return s.releasing.Delete(ctx, queue, p)
	}
	go func() { _ = s.releasing.Delete(context.WithoutCancel(ctx), queue, p) }()
	return nil
}

// forgetsItsDelete repeats a request whose reply was lost, and believes the second reply.
type forgetsItsDelete struct {
	*releasing
	lost atomic.Bool
}

func (s *forgetsItsDelete) loseReply(op Op, committed bool) bool {
	if op == OpDelete && committed {
		s.lost.Store(true)
		return true
	}
	return false
}

func (s *forgetsItsDelete) Delete(ctx context.Context, queue string, p driver.Place) error {
	if s.lost.Swap(false) {
		_ = s.releasing.Delete(ctx, queue, p)
	}
	return s.releasing.Delete(ctx, queue, p)
}

type byNameDelete struct {
	*releasing
	store *memdriver.Store
}

func (s byNameDelete) Delete(ctx context.Context, queue string, p driver.Place) error {
	if err := driver.CheckQueue(queue); err != nil {
		return err
	}
	if err := s.Err(); err != nil {
		return err
	}
	if !s.store.Faults().RemoveNode(queue, p.Name) {
		return driver.ErrGone
	}
	return nil
}

type neverGone struct{ *releasing }

func (s neverGone) Delete(ctx context.Context, queue string, p driver.Place) error {
	err := s.releasing.Delete(ctx, queue, p)
	if errors.Is(err, driver.ErrGone) {
		return nil
	}
	return err
}

type hangs struct{ *releasing }

func (s hangs) Delete(context.Context, string, driver.Place) error { select {} }
