package dlocktest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

var deleteSabotages = []sabotage{
	{"deletes by name", "a store where names come again, and a request that contains the name only",
		func(s base, st *memdriver.Store) driver.Session { return byNameDelete{s, st} }},
	{"returns success for a node that is gone", "Redis, SQL: DEL and DELETE succeed for a missing node, and the number of removed nodes is ignored",
		of(func(s base) neverGone { return neverGone{s} })},
	{"returns the error of its store for a node that is gone", "SQL: no rows; Redis: nil",
		of(func(s base) plainGone { return plainGone{s} })},
	{"deletes the head of the queue", "Redis: ZPOPMIN, because the holder is the oldest",
		func(s base, st *memdriver.Store) driver.Session { return deletesHead{s, st} }},
	{"deletes in the background", "a pipeline whose answers are not read",
		of(func(s base) deletesLater { return deletesLater{s} })},
	{"takes its own delete for the delete of another client", "a client library that repeats a request whose reply was lost",
		of(func(s base) *forgetsItsDelete { return &forgetsItsDelete{base: s} })},
	{"deletes by name if the request comes late", "a network that delays, and a request that contains the path only",
		func(s base, st *memdriver.Store) driver.Session { return &deletesLate{base: s, store: st} }},
	{"never returns from Delete", "waiting for an answer without a limit",
		of(func(s base) hangs { return hangs{s} })},
}

type plainGone struct{ base }

func (s plainGone) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	err := s.base.Delete(ctx, queue, p, why)
	if errors.Is(err, driver.ErrGone) {
		return errPlain("no rows in result set")
	}
	return err
}

type deletesHead struct {
	base
	store *memdriver.Store
}

func (s deletesHead) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return err
	}
	if !slices.Contains(nodes, p.Node) {
		return s.base.Delete(ctx, queue, p, why)
	}
	s.store.Faults().RemoveNode(queue, nodes[0].Name)
	return nil
}

type deletesLater struct{ base }

func (s deletesLater) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if _, err := s.Read(ctx, queue, p.Name); err != nil {
		return s.base.Delete(ctx, queue, p, why)
	}
	go func() { _ = s.base.Delete(context.WithoutCancel(ctx), queue, p, why) }()
	return nil
}

// forgetsItsDelete is a session that repeats a Delete whose reply was lost, and
// returns the second reply, which wrongly says that the node was already gone.
type forgetsItsDelete struct {
	base
	lost atomic.Bool
}

func (s *forgetsItsDelete) lose(op faults.Op, committed bool) bool {
	if op == faults.OpDelete && committed {
		s.lost.Store(true)
		return true
	}
	return false
}

func (s *forgetsItsDelete) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if s.lost.Swap(false) {
		_ = s.base.Delete(ctx, queue, p, why)
	}
	return s.base.Delete(ctx, queue, p, why)
}

type byNameDelete struct {
	base
	store *memdriver.Store
}

func (s byNameDelete) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
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

type neverGone struct{ base }

func (s neverGone) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	err := s.base.Delete(ctx, queue, p, why)
	if errors.Is(err, driver.ErrGone) {
		return nil
	}
	return err
}

type hangs struct{ base }

func (s hangs) Delete(context.Context, string, driver.Place, driver.Cause) error { select {} }

// deletesLate is a session whose delayed Delete, when it arrives, removes
// whichever node then has the name.
type deletesLate struct {
	base
	store *memdriver.Store
	late  lateRequests
}

func (s *deletesLate) holdRequest(faults.Op) (arrive func()) { return s.late.hold() }

func (s *deletesLate) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if s.late.sent(func() { s.store.Faults().RemoveNode(queue, p.Name) }) {
		return errReset
	}
	return s.base.Delete(ctx, queue, p, why)
}
