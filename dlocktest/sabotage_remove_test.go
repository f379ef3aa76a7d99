package dlocktest

import (
	"context"
	"errors"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var removeSabotages = []sabotage{
	{"removes by name", "a request that contains the path only, in a store where names come again",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			return gone(s.store.Faults().RemoveNode(queue, p.Name))
		})},
	{"removes by token", "SQL: DELETE ... WHERE token = ?",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			return s.Delete(ctx, queue, p, driver.Changed)
		})},
	{"removes by sequence", "Redis: ZREMRANGEBYSCORE, with the sequence in the name",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			nodes, _ := s.List(ctx, queue)
			for _, n := range nodes {
				if n.Seq == p.Seq && n.Epoch == p.Epoch {
					p.Name = n.Name
				}
			}
			return s.base.Remove(ctx, queue, p)
		})},
	{"compares no token that is zero", "a check of the token that is meant for callers who know none",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			if p.Token == 0 {
				return gone(s.store.Faults().RemoveNode(queue, p.Name))
			}
			return s.base.Remove(ctx, queue, p)
		})},
	{"removes its own nodes only", "one statement for Delete and Remove, with the session in its condition",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			if info, err := s.Read(ctx, queue, p.Name); err == nil && info.Foreign {
				return driver.ErrGone
			}
			return s.base.Remove(ctx, queue, p)
		})},
	{"removes nodes of sessions only", "SQL: a join of nodes and sessions",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			if info, err := s.Read(ctx, queue, p.Name); err == nil && info.Owner == "" {
				return driver.ErrGone
			}
			return s.base.Remove(ctx, queue, p)
		})},
	{"removes the whole queue", "Redis: DEL; etcd: a range of keys",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			err := s.base.Remove(ctx, queue, p)
			if err == nil {
				s.store.Faults().RemoveQueue(queue)
			}
			return err
		})},
	{"removes the session of the node", "etcd: revoking the lease",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			owner, known := s.owners.Load(p)
			err := s.base.Remove(ctx, queue, p)
			if err == nil && known {
				s.store.Faults().Drop(owner.(base))
			}
			return err
		})},
	{"removes a node that is gone", "Redis, SQL: the number of removed nodes is ignored",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			if err := s.base.Remove(ctx, queue, p); !errors.Is(err, driver.ErrGone) {
				return err
			}
			return nil
		})},
	{"removes in the name of the owner, as its release", "SQL: a function that releases a lock, called with the session of the holder",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			if _, err := s.Read(ctx, queue, p.Name); err == nil {
				if owner, known := s.owners.Load(p); known {
					return owner.(base).Delete(ctx, queue, p, driver.Released)
				}
			}
			return s.base.Remove(ctx, queue, p)
		})},
	{"sends Released without knowing what Remove removed", "a store that tells the waiters behind a node of its removal, and not its owner",
		overtaking(func(s *overtaken, p driver.Place) bool {
			_, own := s.deleted.Load(p)
			return !own && s.Err() == nil
		})},
	{"removes without a check of the name of the queue", "a method that is written last",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			err := s.base.Remove(ctx, queue, p)
			if errors.Is(err, driver.ErrBadName) {
				return driver.ErrGone
			}
			return err
		})},
	{"does not tell of what it removes", "Redis: a script that removes and does not publish",
		removing(func(ctx context.Context, s *remover, queue string, p driver.Place) error {
			s.untold.Store(queue+"/"+p.Name, true)
			return s.base.Remove(ctx, queue, p)
		})},
}

func gone(removed bool) error {
	if removed {
		return nil
	}
	return driver.ErrGone
}

// remover is a session with its own, wrong Remove method.
type remover struct {
	base
	store  *memdriver.Store
	owners *sync.Map // maps the place of each node in the store to the session that owns it
	untold *sync.Map // nodes whose removal no watch reports, by queue and name
	remove func(ctx context.Context, s *remover, queue string, p driver.Place) error
}

func removing(remove func(ctx context.Context, s *remover, queue string, p driver.Place) error) wrap {
	owners, untold := perStore(func() *sync.Map { return new(sync.Map) }), perStore(func() *sync.Map { return new(sync.Map) })
	return func(s base, st *memdriver.Store) driver.Session {
		return &remover{s, st, owners(st), untold(st), remove}
	}
}

func (s *remover) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	s.owners.Store(j.Place, s.base)
	return j, err
}

func (s *remover) Remove(ctx context.Context, queue string, p driver.Place) error {
	return s.remove(ctx, s, queue, p)
}

func (s *remover) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return passIf(s, w, func() bool {
		for _, n := range append(ahead, p.Node) {
			if _, untold := s.untold.Load(queue + "/" + n.Name); untold {
				return false
			}
		}
		return true
	}), err
}
