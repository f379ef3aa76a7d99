package dlocktest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var lossSabotages = []sabotage{
	{"keeps its sessions when the data are lost", "Redis: no request compares the data with the server that holds them",
		dataLoser(func(*losingSession, *time.Duration) loss { return loss{survived: true} })},
	{"waits for less than a lease after a loss", "a grace that a change of the clock ends",
		dataLoser(func(_ *losingSession, grace *time.Duration) loss {
			*grace = soundTimeout / 8
			return loss{}
		})},
	{"restores the nodes of lost sessions", "a backup of all tables, and no clean-up",
		dataLoser(func(s *losingSession, _ *time.Duration) loss { return loss{restore: s.restore} })},
	{"counts tokens anew after a loss", "a sequence that is lost with the data",
		func() wrap {
			counts := perStore(func() *atomic.Int64 { return new(atomic.Int64) })
			return func(s base, st *memdriver.Store) driver.Session {
				count := counts(st)
				return &recounting{renumber(s, func(string, driver.Place) int64 { return count.Add(1) }), count}
			}
		}()},
}

// loss describes how a lossListener behaves when its store loses its data.
type loss struct {
	survived bool   // the session does not end
	restore  func() // called after the loss, unless it is nil
}

// losingSession is a session that behaves as how says when its store loses its
// data.
type losingSession struct {
	base
	store *memdriver.Store
	how   func(*losingSession, *time.Duration) loss
	last  atomic.Pointer[string] // name of the latest node in the queue q
}

func dataLoser(how func(*losingSession, *time.Duration) loss) wrap {
	return func(s base, st *memdriver.Store) driver.Session { return &losingSession{base: s, store: st, how: how} }
}

func (s *losingSession) losingData(grace *time.Duration) loss { return s.how(s, grace) }

func (s *losingSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err == nil && queue == "q" {
		s.last.Store(&j.Name)
	}
	return j, err
}

func (s *losingSession) restore() {
	if name := s.last.Load(); name != nil {
		_ = s.store.Faults().PutNode("q", *name, nil)
	}
}

type recounting struct {
	*renumbered
	count *atomic.Int64
}

func (s *recounting) losingData(*time.Duration) loss {
	s.count.Store(0)
	return loss{}
}
