package zkdriver

import "slices"

// inFlight tracks the requests in flight that create or remove nodes, by queue.
// It detects a removal that hits the wrong node.
//
// Node names repeat when an operator removes a queue and recreates it. Suppose
// that a session requests the removal of an old node, and the operator
// recreates the queue before the server carries that out. If a Create in
// between gets the old node's name, the server removes the new node, because a
// removal names only a path. This may even happen before the session has
// handled the answer to the Create. So both sides check:
//
//   - A Create whose node has a name that is being removed waits for that
//     removal. Before Create returns, it checks that its node still exists.
//   - A removal waits for the Creates that were in flight when it began, whose
//     answers arrive before its own. Then it checks whether one of them has made
//     the node that it has removed.
//
// Guarded by ownNodes.mu.
type inFlight struct {
	queues map[string]*queueInFlight
}

type queueInFlight struct {
	creations []*creation
	removals  []*removal
}

type creation struct {
	ended        chan struct{} // closed by endCreation; nil unless a removal is waiting for this Create
	removedNames []string      // names of nodes whose removal ended after this Create began
}

// removal is a request in flight that removes a node.
type removal struct {
	names     []string      // possible names of the node
	ended     chan struct{} // closed by endRemoval; nil unless a Create is waiting for this removal
	creations []*creation   // Creates in flight when the removal began
}

func (f *inFlight) beginCreation(queue string) *creation {
	c := &creation{}
	q := f.in(queue)
	q.creations = append(q.creations, c)
	return c
}

// endCreation ends a Create and checks whether a removal may have hit its new
// node by mistake. met reports whether a removal of that name was in flight at
// the same time. wait has a channel for each such removal that is still in
// flight. The node must already be recorded among the session's nodes.
func (f *inFlight) endCreation(queue string, c *creation, name string) (wait []<-chan struct{}, met bool) {
	q := f.in(queue)
	q.creations = slices.DeleteFunc(q.creations, func(other *creation) bool { return other == c })
	if c.ended != nil {
		close(c.ended)
	}
	for _, r := range q.removals {
		if slices.Contains(r.names, name) {
			if r.ended == nil {
				r.ended = make(chan struct{})
			}
			wait = append(wait, r.ended)
		}
	}
	f.dropIfEmpty(queue, q)
	return wait, len(wait) > 0 || slices.Contains(c.removedNames, name)
}

func (f *inFlight) beginRemoval(queue string, names []string) *removal {
	q := f.in(queue)
	r := &removal{names: names, creations: slices.Clone(q.creations)}
	for _, c := range r.creations {
		if c.ended == nil {
			c.ended = make(chan struct{})
		}
	}
	q.removals = append(q.removals, r)
	return r
}

func (f *inFlight) endRemoval(queue string, r *removal) {
	q := f.in(queue)
	q.removals = slices.DeleteFunc(q.removals, func(other *removal) bool { return other == r })
	if r.ended != nil {
		close(r.ended)
	}
	for _, c := range q.creations {
		c.removedNames = append(c.removedNames, r.names...)
	}
	f.dropIfEmpty(queue, q)
}

func (f *inFlight) in(queue string) *queueInFlight {
	q := f.queues[queue]
	if q == nil {
		if f.queues == nil {
			f.queues = make(map[string]*queueInFlight)
		}
		q = &queueInFlight{}
		f.queues[queue] = q
	}
	return q
}

func (f *inFlight) dropIfEmpty(queue string, q *queueInFlight) {
	if len(q.creations)+len(q.removals) == 0 {
		delete(f.queues, queue)
	}
}
