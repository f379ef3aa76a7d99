package dlocktest

import (
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var removeSabotages = []sabotage{
	{"removes by name", "a request that contains the path only, in a store where names come again",
		on(faults.OpRemove, func(r *request, _ func()) { r.err = gone(r.s.store.Faults().RemoveNode(r.queue, r.place.Name)) })},
	{"removes by token", "SQL: DELETE ... WHERE token = ?",
		on(faults.OpRemove, func(r *request, _ func()) { r.err = r.s.Delete(r.ctx, r.queue, r.place, driver.Changed) })},
	{"removes by sequence", "Redis: ZREMRANGEBYSCORE, with the sequence in the name",
		on(faults.OpRemove, func(r *request, send func()) {
			nodes, _ := r.s.List(r.ctx, r.queue)
			for _, n := range nodes {
				if n.Seq == r.place.Seq && n.Epoch == r.place.Epoch {
					r.place.Name = n.Name
				}
			}
			send()
		})},
	{"compares no token that is zero", "a check of the token that is meant for callers who know none",
		on(faults.OpRemove, func(r *request, send func()) {
			if r.place.Token == 0 {
				r.err = gone(r.s.store.Faults().RemoveNode(r.queue, r.place.Name))
				return
			}
			send()
		})},
	{"removes its own nodes only", "one statement for Delete and Remove, with the session in its condition",
		removesUnless(func(n driver.NodeInfo) bool { return n.Foreign })},
	{"removes nodes of sessions only", "SQL: a join of nodes and sessions",
		removesUnless(func(n driver.NodeInfo) bool { return n.Owner == "" })},
	{"removes the whole queue", "Redis: DEL; etcd: a range of keys",
		after(faults.OpRemove, func(r *request) { r.s.store.Faults().RemoveQueue(r.queue) })},
	{"removes the session of the node", "etcd: revoking the lease",
		removesAsOwner(func(r *request, owner base, send func()) {
			if send(); r.err == nil {
				r.s.store.Faults().Drop(owner)
			}
		})},
	{"removes a node that is gone", "Redis, SQL: the number of removed nodes is ignored",
		confuses(faults.OpRemove, driver.ErrGone, nil)},
	{"removes in the name of the owner, as its release", "SQL: a function that releases a lock, called with the session of the holder",
		removesAsOwner(func(r *request, owner base, send func()) {
			if _, err := r.s.Read(r.ctx, r.queue, r.place.Name); err != nil {
				send()
				return
			}
			r.err = owner.Delete(r.ctx, r.queue, r.place, driver.Released)
		})},
	{"sends Released without knowing what Remove removed", "a store that tells the waiters behind a node of its removal, and not its owner",
		overtaking(notItself)},
	{"does not tell of what it removes", "Redis: a script that removes and does not publish",
		func(s *faulty) {
			untold := inStore[sync.Map](s) // removed nodes, by queue and name
			s.before(faults.OpRemove, func(r *request) { untold.Store(r.queue+"/"+r.place.Name, true) })
			s.after(faults.OpWatch, func(r *request) {
				r.watch = passIf(s, r.watch, func() bool {
					return !slices.ContainsFunc(append(r.ahead, r.place.Node), func(n driver.Node) bool {
						_, secret := untold.Load(r.queue + "/" + n.Name)
						return secret
					})
				})
			})
		}},
}

func removesUnless(spared func(driver.NodeInfo) bool) plant {
	return refuses(faults.OpRemove, driver.ErrGone, func(r *request) bool {
		info, err := r.s.Read(r.ctx, r.queue, r.place.Name)
		return err == nil && spared(info)
	})
}

// removesAsOwner makes Remove act as the session that created the node, if
// known.
func removesAsOwner(remove func(r *request, owner base, send func())) plant {
	return func(s *faulty) {
		owners := inStore[sync.Map](s)
		s.after(faults.OpCreate, func(r *request) { owners.Store(r.joined.Place, s.base) })
		s.on(faults.OpRemove, func(r *request, send func()) {
			if owner, known := owners.Load(r.place); known {
				remove(r, owner.(base), send)
				return
			}
			send()
		})
	}
}
