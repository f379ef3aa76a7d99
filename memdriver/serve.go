package memdriver

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// serve does what a request asks for. It is where the requests of sessions
// arrive at the store.
func (st *Store) serve(r *record, req *request) reply {
	now, err := r.arrive(req.op)
	if req.op == OpClose { // also where it has ended: its nodes may still be going
		r.end()
		return reply{}
	}
	if err != nil {
		return reply{err: err}
	}
	switch req.op {
	case OpCreate:
		return st.create(r, req, now)
	case OpList:
		return st.list(req)
	case OpWatch:
		return st.watch(req)
	case OpDelete:
		return st.delete(req)
	case OpRelease:
		return st.release(r, req)
	case OpReplace:
		return st.replace(r, req)
	case OpRead:
		return st.read(r, req)
	case OpWalk:
		return st.walk(req)
	case OpCleanUp:
		st.cleanUp(r, req)
	}
	return reply{} // also OpHeartbeat: to have arrived is all there is to it
}

func (st *Store) create(r *record, req *request, now time.Time) reply {
	sh := st.shard(req.queue)
	sh.lock()
	defer sh.unlock()
	q := st.open(sh, req.queue)
	defer sh.settle(q)
	seq, err := st.sequence(q)
	if err != nil {
		return reply{err: err}
	}
	n := &node{
		queue: q, name: driver.FormatName(req.prefix, seq), seq: seq, epoch: q.epoch, sequenced: true,
		data: req.data, created: now, owner: r, call: req.call,
	}
	if err := r.own(n); err != nil {
		return reply{err: err}
	}
	alone := q.sequenced == 0 // rule 5
	n.token = st.tokens.Add(1)
	q.next = seq + 1
	sh.add(n)
	return reply{place: driver.Place{Node: n.id(), Token: n.token, Alone: alone}}
}

// sequence returns the next sequence of a queue. At the high-water mark the
// queue turns into a new incarnation, once it is empty: contenders that were there
// before and after that could not be told apart by their names.
func (st *Store) sequence(q *queue) (int64, error) {
	if q.next >= st.sequenceLimit {
		if q.sequenced > 0 {
			return 0, fmt.Errorf("%w: its sequences are used up, and start over when its %d older nodes have gone",
				driver.ErrUnavailable, q.sequenced)
		}
		q.epoch = st.epochs.Add(1)
		q.next = 0
	}
	return q.next, nil
}

func (st *Store) list(req *request) reply {
	sh := st.shard(req.queue)
	sh.lock()
	defer sh.unlock()
	if q := sh.queues[req.queue]; q != nil {
		return reply{nodes: q.list()}
	}
	return reply{}
}

// watch arms a watch: rule 6. One on a node that is not there ends at once. One on a place is not
// armed if the node is not there, or is another one of its name: rule 13.
func (st *Store) watch(req *request) reply {
	sh := st.shard(req.queue)
	sh.lock()
	defer sh.unlock()
	w := req.watch
	if w.dropped {
		return reply{} // its context has ended meanwhile
	}
	if req.name == "" {
		q := st.open(sh, req.queue)
		sh.arm(w, &q.watches, q)
		return reply{}
	}
	n := sh.find(req.queue, req.name)
	switch {
	case req.place.Token != 0 && (n == nil || n.token != req.place.Token):
		return reply{missing: true}
	case n == nil:
		sh.end(w, driver.Changed)
	default:
		sh.arm(w, &n.watches, n.queue)
	}
	return reply{}
}

// delete removes the node with the token of the place: rule 7. The token is
// never given out again, so that a repeat can't hit another node; and it
// finds the node under either of its names after a Replace: rule 12.
func (st *Store) delete(req *request) reply {
	sh := st.shard(req.queue)
	sh.lock()
	defer sh.unlock()
	n := sh.holder(req.queue, req.place)
	if n == nil {
		return reply{err: driver.ErrGone}
	}
	sh.remove(n, driver.Changed)
	return reply{}
}

// release is delete by the node's owner, of which watches of the node are told: rule 13.
func (st *Store) release(r *record, req *request) reply {
	sh := st.shard(req.queue)
	sh.lock()
	defer sh.unlock()
	n := sh.holder(req.queue, req.place)
	switch {
	case n == nil:
		return reply{err: driver.ErrGone}
	case n.owner != r:
		return reply{err: errNotOwner}
	}
	sh.remove(n, driver.Released)
	return reply{}
}

// replace renames a node where it stands: rule 12.
func (st *Store) replace(r *record, req *request) reply {
	sh := st.shard(req.queue)
	sh.lock()
	defer sh.unlock()
	n := sh.holder(req.queue, req.place)
	switch {
	case n == nil:
		return reply{err: driver.ErrGone}
	case n.owner != r:
		return reply{err: errNotOwner}
	}
	if name := driver.FormatName(req.prefix, n.seq); name != n.name {
		n.queue.rename(n, name)
		sh.fire(&n.watches, driver.Changed)
		sh.fire(&n.queue.watches, driver.Changed)
	}
	return reply{place: driver.Place{Node: n.id(), Token: n.token}}
}

func (st *Store) read(r *record, req *request) reply {
	sh := st.shard(req.queue)
	sh.lock()
	defer sh.unlock()
	n := sh.find(req.queue, req.name)
	if n == nil {
		return reply{err: driver.ErrGone}
	}
	info := n.info()
	info.Foreign = n.owner != r
	return reply{info: info}
}

func (st *Store) walk(req *request) reply {
	var queues []string
	for i := range st.shards {
		queues = st.shards[i].walk(queues, req.name)
	}
	slices.Sort(queues)
	return reply{queues: queues}
}

// walk appends the names of the queues with nodes at prefix or below it.
func (sh *shard) walk(queues []string, prefix string) []string {
	sh.lock()
	defer sh.unlock()
	for name, q := range sh.queues {
		if q.nodes.len > 0 && within(name, prefix) {
			queues = append(queues, name)
		}
	}
	return queues
}

func within(name, prefix string) bool {
	below, ok := strings.CutPrefix(name, prefix)
	return ok && (prefix == "" || below == "" || below[0] == '/')
}

// cleanUp sees to it that no node of that Create stays, nor comes later: rule 4.
func (st *Store) cleanUp(r *record, req *request) {
	if n := r.undo(req.call); n != nil {
		st.remove(n)
	}
}

// remove removes a node that was found by way of its owner.
func (st *Store) remove(n *node) {
	sh := st.shard(n.queue.name)
	sh.lock()
	defer sh.unlock()
	sh.remove(n, driver.Changed)
}
