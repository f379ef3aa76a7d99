package zkdriver

import (
	"cmp"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// ownNodes records the nodes of this session. A doubtful node may have been
// removed or renamed, so it must be read before it is deleted.
type ownNodes struct {
	mu       sync.Mutex
	byToken  map[int64]*ownNode
	queues   map[string]*ownQueue
	inFlight inFlight
	added    uint64 // number of nodes ever added
}

type ownQueue struct {
	epoch int64
	bySeq map[int64]*ownNode
}

type ownNode struct {
	busy sync.Mutex // held during Delete and Replace

	// Guarded by ownNodes.mu.
	queue      string
	token, seq int64
	names      []string // several after an unanswered Replace
	doubtful   bool
	number     uint64 // the node's number, from ownNodes.added
	connection uint64 // connection that last showed the node
}

func (o *ownNodes) add(queue string, p driver.Place, connection uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byToken == nil {
		o.byToken, o.queues = make(map[int64]*ownNode), make(map[string]*ownQueue)
	}
	o.setEpoch(queue, p.Epoch)
	in := o.queues[queue]
	if in == nil {
		in = &ownQueue{epoch: p.Epoch, bySeq: make(map[int64]*ownNode)}
		o.queues[queue] = in
	}
	if in.epoch != p.Epoch {
		return // the queue was recreated: the node is gone
	}
	o.added++
	n := &ownNode{number: o.added, queue: queue, token: p.Token, seq: p.Seq, names: []string{p.Name}, connection: connection}
	o.byToken[p.Token], in.bySeq[p.Seq] = n, n
}

// setEpoch drops a recreated queue's earlier nodes. The caller holds o.mu.
func (o *ownNodes) setEpoch(queue string, epoch int64) {
	in := o.queues[queue]
	if in == nil || epoch <= in.epoch {
		return
	}
	for _, n := range in.bySeq {
		delete(o.byToken, n.token)
	}
	in.epoch = epoch
	clear(in.bySeq)
}

func (o *ownNodes) any() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byToken) > 0
}

// addedSoFar returns the highest ownNode.number so far.
func (o *ownNodes) addedSoFar() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.added
}

func (o *ownNodes) forget(token int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.byToken[token]; n != nil {
		o.drop(n)
	}
}

func (o *ownNodes) drop(n *ownNode) {
	delete(o.byToken, n.token)
	in := o.queues[n.queue]
	if in != nil && in.bySeq[n.seq] == n {
		delete(in.bySeq, n.seq)
	}
	if in != nil && len(in.bySeq) == 0 {
		delete(o.queues, n.queue)
	}
}

func (o *ownNodes) find(queue string, token int64) *ownNode {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.byToken[token]; n != nil && n.queue == queue {
		return n
	}
	return nil
}

// otherNodeOfName returns this session's node with that name but another token.
func (o *ownNodes) otherNodeOfName(queue, name string, token int64) (p driver.Place, there bool) {
	seq, ok := sequenceOf(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	in := o.queues[queue]
	if !ok || in == nil {
		return p, false
	}
	n := in.bySeq[seq]
	if n == nil || n.token == token || !slices.Contains(n.names, name) {
		return p, false
	}
	return driver.Place{Node: driver.Node{Name: name, Seq: seq, Epoch: in.epoch}, Token: n.token}, true
}

// beginPlainRemoval makes the node doubtful. If r is nil, read the node first.
func (o *ownNodes) beginPlainRemoval(n *ownNode, connection uint64) (name string, r *removal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n.doubtful || len(n.names) != 1 || n.connection != connection || o.byToken[n.token] != n {
		return "", nil
	}
	n.doubtful = true
	return n.names[0], o.inFlight.beginRemoval(n.queue, n.names)
}

func (o *ownNodes) beginRemoval(queue string, names ...string) *removal {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inFlight.beginRemoval(queue, names)
}

func (o *ownNodes) possibleNames(n *ownNode) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(n.names)
}

func (o *ownNodes) doubt(n *ownNode, names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n.doubtful = true
	for _, name := range names {
		if !slices.Contains(n.names, name) {
			n.names = append(n.names, name)
		}
	}
}

func (o *ownNodes) seenAs(n *ownNode, name string, connection uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n.doubtful, n.names, n.connection = false, []string{name}, connection
}

func (o *ownNodes) epochSeen(queue string, epoch int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setEpoch(queue, epoch)
}

// nodeGone forgets a node that the server says is missing. The argument asked
// comes from addedSoFar before the request: later nodes are kept.
func (o *ownNodes) nodeGone(queue, name string, asked uint64) {
	seq, ok := sequenceOf(name)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.queues[queue]; in != nil {
		// During a Replace the node may exist under another name.
		if n := in.bySeq[seq]; n != nil && n.number <= asked && len(n.names) == 1 && n.names[0] == name {
			o.drop(n)
		}
	}
}

// queueListed forgets nodes that a list does not show. It keeps those created
// after zxid, the list's latest transaction. The list is in queue order.
func (o *ownNodes) queueListed(queue string, epoch, zxid int64, nodes []driver.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setEpoch(queue, epoch)
	in := o.queues[queue]
	if in == nil || epoch != in.epoch {
		return
	}
	for seq, n := range in.bySeq {
		_, there := slices.BinarySearchFunc(nodes, seq, func(n driver.Node, seq int64) int { return cmp.Compare(n.Seq, seq) })
		if !there && n.token <= zxid {
			o.drop(n)
		}
	}
}

// queueGone forgets a removed queue's nodes, except those added after the
// request: see nodeGone.
func (o *ownNodes) queueGone(queue string, asked uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.queues[queue]; in != nil {
		for _, n := range in.bySeq {
			if n.number <= asked {
				o.drop(n)
			}
		}
	}
}

// inFlight tracks the requests in flight that create or remove nodes, by queue.
// It detects a removal that hits the wrong node.
//
// A removal names only a path. Suppose that an operator recreates the queue
// while a removal is in flight, and a Create gets the removed node's name. The
// server then removes the new node, perhaps before the session has handled the
// answer to the Create. So both sides check:
//
//   - If a removal of the new node's name was in flight meanwhile, Create waits
//     until the removal has ended, and checks that the new node still exists.
//   - A successful removal waits for the Creates that were in flight when the
//     removal began. If one of them made a node of the removed name, the
//     session checks whether that node still exists.
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
	ended        chan struct{} // closed by endCreation; nil unless a removal waits
	removedNames []string      // of removals that ended during this Create
}

type removal struct {
	names     []string      // the node's possible names
	ended     chan struct{} // closed by endRemoval; nil unless a Create waits
	creations []*creation   // Creates in flight when the removal began
}

func (o *ownNodes) beginCreation(queue string) *creation {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := &creation{}
	q := o.inFlight.in(queue)
	q.creations = append(q.creations, c)
	return c
}

// endCreation ends a Create whose node is recorded. If met is true, a removal
// may hit the node. Those in flight are in wait.
func (o *ownNodes) endCreation(queue string, c *creation, name string) (wait []<-chan struct{}, met bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.inFlight.in(queue)
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
	o.inFlight.dropIfEmpty(queue, q)
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

func (o *ownNodes) endRemoval(queue string, r *removal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	q := o.inFlight.in(queue)
	q.removals = slices.DeleteFunc(q.removals, func(other *removal) bool { return other == r })
	if r.ended != nil {
		close(r.ended)
	}
	for _, c := range q.creations {
		c.removedNames = append(c.removedNames, r.names...)
	}
	o.inFlight.dropIfEmpty(queue, q)
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
