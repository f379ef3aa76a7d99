package zkdriver

import (
	"cmp"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// ownNodes remembers the nodes that this session has created and not yet
// removed. It records which of these nodes are doubtful. A node is doubtful if
// it may be gone, or may have another name. A node that is not doubtful is
// deleted with one plain request. Before the driver deletes a doubtful node, it
// reads the node that has the name, because names repeat after a queue was
// removed and made again. A node that is known to be gone is forgotten, so that
// the memory in use stays bounded.
type ownNodes struct {
	mu       sync.Mutex
	byToken  map[int64]*ownNode
	queues   map[string]*ownQueue
	inFlight inFlight
	created  uint64 // how many nodes were ever added
	creating int    // how many Creates are in flight
	waiting  int    // number of nodes that only wait, see beginWait

	// The turns of the nodes that only wait.
	next   int // number of nodes that are next in line
	unsure map[*turn]struct{}
	behind map[string]map[*turn]struct{} // by the path of V
}

// ownQueue is the session's nodes in one queue.
type ownQueue struct {
	epoch int64
	bySeq map[int64]*ownNode
}

// ownNode is one node.
type ownNode struct {
	busy sync.Mutex // held during Delete and Replace

	// ownNodes.mu guards the rest.
	queue      string
	token, seq int64
	names      []string // the names that the node may have; several after an unanswered Replace
	doubtful   bool
	number     uint64 // the value of ownNodes.created when this node was added
	connection uint64 // the connection on which the node was last seen
	waits      int    // number of open watches of this node and of nodes ahead; a watch that has had an event does not count
	round      int    // number of times that a watch of this node or of a node ahead had an event, which ends its waits
	turn       *turn  // nil unless the node only waits
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
		return // the queue was made again meanwhile, so the node is gone
	}
	o.created++
	n := &ownNode{number: o.created, queue: queue, token: p.Token, seq: p.Seq, names: []string{p.Name}, connection: connection}
	o.byToken[p.Token], in.bySeq[p.Seq] = n, n
}

// setEpoch records the epoch of a queue. If the epoch is later than the
// recorded one, all nodes of the recorded epoch are gone, and other nodes may
// have their names. The caller holds o.mu.
func (o *ownNodes) setEpoch(queue string, epoch int64) {
	in := o.queues[queue]
	if in == nil || epoch <= in.epoch {
		return
	}
	for _, n := range in.bySeq {
		o.remove(n)
	}
	in.epoch = epoch
	clear(in.bySeq)
}

// duty returns zkconn.Holding if a node of the session may hold a lock, or a
// Create is in flight, and zkconn.Idle if the session has no node. If the
// session has nodes and all of them only wait, their turns decide the result.
func (o *ownNodes) duty() zkconn.Duty {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.creating > 0 || len(o.byToken) > o.waiting:
		return zkconn.Holding
	case o.next > 0:
		return zkconn.Next
	case len(o.unsure) > 0:
		return zkconn.Unsure
	case o.waiting > 0:
		return zkconn.Waiting
	}
	return zkconn.Idle
}

// anyHeld reports whether a node of the session may hold a lock. It does not
// count nodes whose Create is in flight.
func (o *ownNodes) anyHeld() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byToken) > o.waiting
}

// beginWait records that a watch of a node and of nodes ahead of it has begun.
// It returns a function that records the end of this watch. The argument of
// that function says whether the watch has had an event.
//
// From then on the node only waits: its contender does not act as a holder. That
// ends when the last such watch is stopped, or when one of them has an event.
// After an event the contender may act as a holder even if other watches are
// still open, because it may already have received the event.
func (o *ownNodes) beginWait(queue string, token int64, ahead []driver.Node) (ended func(event bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.byToken[token]
	if n == nil || n.queue != queue {
		return func(bool) {}
	}
	if n.waits++; n.waits == 1 {
		o.waiting++
	}
	o.beginTurn(n, ahead)
	round := n.round
	return func(event bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if n.round == round {
			o.endWait(n, event)
		}
	}
}

// endWait is called when a watch of a node that only waits has ended or has had
// an event. After an event the contender of the node may act as a holder.
// Without an event the node goes on waiting as long as it has other such
// watches. The caller holds o.mu.
func (o *ownNodes) endWait(n *ownNode, event bool) {
	if event {
		n.round++
		n.waits = 0
	} else {
		n.waits--
	}
	if n.waits == 0 && o.byToken[n.token] == n {
		o.waiting--
		o.endTurn(n)
	}
}

// remove takes a node out of byToken. If the node only waited, it is not
// counted as waiting any more. The caller holds o.mu.
func (o *ownNodes) remove(n *ownNode) {
	if o.byToken[n.token] != n {
		return
	}
	delete(o.byToken, n.token)
	if n.waits > 0 {
		o.waiting--
		o.endTurn(n)
	}
}

// addCreating is called with 1 before a Create, and with -1 after its node, if
// any, was added.
func (o *ownNodes) addCreating(change int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.creating += change
}

// createdSoFar returns a number that separates the nodes that were added so far
// from the nodes that are added later.
func (o *ownNodes) createdSoFar() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.created
}

// forget forgets a node that is gone.
func (o *ownNodes) forget(token int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := o.byToken[token]; n != nil {
		o.drop(n)
	}
}

// drop forgets a node. The caller holds o.mu.
func (o *ownNodes) drop(n *ownNode) {
	o.remove(n)
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

// otherNodeOfName returns the place of a node of this session that has that
// name and another token.
func (o *ownNodes) otherNodeOfName(queue, name string, token int64) (p driver.Place, there bool) {
	_, seq, ok := driver.ParseName(name)
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

// beginPlainRemoval is called before a node is removed without being read. It
// returns the node's name, and makes the node doubtful until the answer to the
// removal has arrived. If the node was doubtful before this call, or was last
// seen on another connection, the result r is nil, and the caller has to read
// the node first.
func (o *ownNodes) beginPlainRemoval(n *ownNode, connection uint64) (name string, r *removal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n.doubtful || len(n.names) != 1 || n.connection != connection || o.byToken[n.token] != n {
		return "", nil
	}
	n.doubtful = true
	return n.names[0], o.inFlight.beginRemoval(n.queue, n.names)
}

// beginRemoval is called before a node is read in order to be removed.
func (o *ownNodes) beginRemoval(queue string, names ...string) *removal {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inFlight.beginRemoval(queue, names)
}

func (o *ownNodes) endRemoval(queue string, r *removal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight.endRemoval(queue, r)
}

// beginCreation is called before the request that creates a node.
func (o *ownNodes) beginCreation(queue string) *creation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inFlight.beginCreation(queue)
}

func (o *ownNodes) endCreation(queue string, c *creation, name string) (wait []<-chan struct{}, met bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inFlight.endCreation(queue, c, name)
}

// possibleNames returns the names that a node may have.
func (o *ownNodes) possibleNames(n *ownNode) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(n.names)
}

// doubt makes a node doubtful, and adds names that it may have.
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

// seenAs records that a node exists and has that name, so that it is not
// doubtful.
func (o *ownNodes) seenAs(n *ownNode, name string, connection uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n.doubtful, n.names, n.connection = false, []string{name}, connection
}

// epochSeen records the epoch that an answer shows for a queue: see setEpoch.
func (o *ownNodes) epochSeen(queue string, epoch int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setEpoch(queue, epoch)
}

// nodeGone is called when an answer shows that no node has that name. The
// parameter asked is what createdSoFar returned before the request was sent. A
// node that was added later may have the name again, so nodeGone does not drop
// it.
func (o *ownNodes) nodeGone(queue, name string, asked uint64) {
	_, seq, ok := driver.ParseName(name)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.queues[queue]; in != nil {
		// While a Replace is in flight, n has two possible names. It is kept
		// then, because the node may have the other one of them.
		if n := in.bySeq[seq]; n != nil && n.number <= asked && len(n.names) == 1 && n.names[0] == name {
			o.drop(n)
		}
	}
}

// queueListed forgets the nodes that a list of the queue does not show. The
// list was made in that epoch of the queue, when the transaction zxid was the
// latest one, and is in the order of the queue. It says nothing about nodes
// that were created later.
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

// queueGone is called when an answer shows that the queue does not exist. It
// forgets the nodes that had been added to the queue before the request was
// sent. The parameter asked is the same as in nodeGone.
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
