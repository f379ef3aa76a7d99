package simulation

import (
	"time"

	"github.com/dlock-go/dlock/driver"
)

func (r *run) removeNode(queue string) {
	nodes := r.nodes(queue)
	if len(nodes) == 0 {
		return
	}
	n := nodes[r.rand.IntN(len(nodes))]
	r.note("an operator removes %s %s", queue, n.Name)
	r.excuse(queue, n)
	r.store.Faults().RemoveNode(queue, n.Name)
}

func (r *run) removeQueue(queue string) {
	r.note("an operator removes %s", queue)
	r.count("queue removed")
	for _, n := range r.nodes(queue) {
		r.excuse(queue, n)
	}
	r.store.Faults().RemoveQueue(queue)
}

// excuse records that an operator removed a node, so that its owner gets time
// to notice.
func (r *run) excuse(queue string, n driver.Node) {
	info, _ := r.info(queue, n.Name)
	r.mu.Lock()
	r.removed[info.Token] = removal{r.gate.step, time.Now()}
	r.mu.Unlock()
	owner := r.ownerOf(info)
	r.count("node removed")
	if call := owner.call(); call > 0 && owner.contendsWith(info) {
		r.count("node of a waiter removed")
		r.nodeless[owner] = nodelessWaiter{call, info.Token, time.Now()}
	}
}

func (r *run) removedSince(t time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, removed := range r.removed {
		if !removed.at.Before(t) {
			n++
		}
	}
	return n
}

// queued reports whether an actor has a node with a greater token in any queue.
func (r *run) queued(a *actor, token int64) bool {
	for _, queue := range r.queues {
		for _, n := range r.nodes(queue) {
			if info, there := r.info(queue, n.Name); there && info.Token > token && r.ownerOf(info) == a {
				return true
			}
		}
	}
	return false
}
