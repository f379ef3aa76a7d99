package zkdriver

import (
	"cmp"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// ownNodes remembers the nodes that this session has made and not yet removed, and of which there
// is a doubt: whether they are still there, and under which name. A node without doubt is
// deleted with one plain request; of any other the driver looks at what is there first, because
// names come again where a queue was removed and made again. So a node that is known to be gone
// is forgotten, and nothing piles up.
type ownNodes struct {
	mu       sync.Mutex
	byToken  map[int64]*ownNode
	queues   map[string]*ownQueue
	inFlight map[string]*inFlight
	created  uint64 // of claims ever made
	creating int    // Creates in flight
	waiting  int    // nodes that only wait
}

// ownQueue is what is owned of one queue.
type ownQueue struct {
	epoch int64
	bySeq map[int64]*ownNode
}

// ownNode is one node.
type ownNode struct {
	busy sync.Mutex // held during Delete and Replace

	// The rest is guarded by owned.mu.
	queue      string
	token, seq int64
	names      []string // under which it may stand; one, but for a Replace without an answer
	doubtful   bool
	born       uint64 // owned.count
	connection uint64 // the one on which it was last seen
	waits      int    // open watches of the node and of nodes ahead of it, without news
	round      int    // how often such a watch has had news
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
		return // the queue is a newer one already, and the node gone
	}
	o.created++
	c := &ownNode{born: o.created, queue: queue, token: p.Token, seq: p.Seq, names: []string{p.Name}, connection: connection}
	o.byToken[p.Token], in.bySeq[p.Seq] = c, c
}

// setEpoch takes down the epoch of a queue. If it is a newer one, all that was owned of the earlier
// one is gone, and others may have the names. It needs o.mu.
func (o *ownNodes) setEpoch(queue string, epoch int64) {
	in := o.queues[queue]
	if in == nil || epoch <= in.epoch {
		return
	}
	for _, c := range in.bySeq {
		o.remove(c)
	}
	in.epoch = epoch
	clear(in.bySeq)
}

// duty returns what the session's nodes ask of its lease.
func (o *ownNodes) duty() zkconn.Duty {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.creating > 0 || len(o.byToken) > o.waiting:
		return zkconn.Holding
	case o.waiting > 0:
		return zkconn.Waiting
	}
	return zkconn.Idle
}

// anyHeld reports whether a node of the session may hold a lock, other than one
// whose Create is in flight.
func (o *ownNodes) anyHeld() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.byToken) > o.waiting
}

// beginWait notes that a watch of a node and of nodes ahead of it has begun, and
// returns what notes its end. As long as there is one, the node only waits. If a
// watch has ended with news, the node does not wait any more, also if it has
// other watches: its contender may have heard the news already.
func (o *ownNodes) beginWait(queue string, token int64) (ended func(news bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.byToken[token]
	if c == nil || c.queue != queue {
		return func(bool) {}
	}
	if c.waits++; c.waits == 1 {
		o.waiting++
	}
	round := c.round
	return func(news bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if c.round == round {
			o.endWait(c, news)
		}
	}
}

// endWait needs o.mu.
func (o *ownNodes) endWait(c *ownNode, news bool) {
	if news {
		c.round++
		c.waits = 0
	} else {
		c.waits--
	}
	if c.waits == 0 && o.byToken[c.token] == c {
		o.waiting--
	}
}

// remove takes a claim out of byToken. It needs o.mu.
func (o *ownNodes) remove(c *ownNode) {
	if o.byToken[c.token] != c {
		return
	}
	delete(o.byToken, c.token)
	if c.waits > 0 {
		o.waiting--
	}
}

// addCreating brackets a Create: change is 1 before it and -1 after its claim, if any, was added.
func (o *ownNodes) addCreating(change int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.creating += change
}

// createdSoFar tells the claims made so far from later ones.
func (o *ownNodes) createdSoFar() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.created
}

// forget is for a node that is gone.
func (o *ownNodes) forget(token int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.byToken[token]; c != nil {
		o.drop(c)
	}
}

// drop needs o.mu.
func (o *ownNodes) drop(c *ownNode) {
	o.remove(c)
	in := o.queues[c.queue]
	if in != nil && in.bySeq[c.seq] == c {
		delete(in.bySeq, c.seq)
	}
	if in != nil && len(in.bySeq) == 0 {
		delete(o.queues, c.queue)
	}
}

func (o *ownNodes) find(queue string, token int64) *ownNode {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.byToken[token]; c != nil && c.queue == queue {
		return c
	}
	return nil
}

// beginPlainRemoval begins the removal of a node that is there beyond doubt, as far
// as is known, and returns its name. From then on the node is in doubt.
func (o *ownNodes) beginPlainRemoval(c *ownNode, connection uint64) (name string, r *removal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.doubtful || len(c.names) != 1 || c.connection != connection || o.byToken[c.token] != c {
		return "", nil
	}
	c.doubtful = true
	return c.names[0], o.addRemoval(c.queue, c.names)
}

// possibleNames returns the names under which a node may stand.
func (o *ownNodes) possibleNames(c *ownNode) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(c.names)
}

// doubt makes the next Delete look first, under these names too.
func (o *ownNodes) doubt(c *ownNode, names ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.doubtful = true
	for _, name := range names {
		if !slices.Contains(c.names, name) {
			c.names = append(c.names, name)
		}
	}
}

// standsUnder ends the doubt: the node stands under that name.
func (o *ownNodes) standsUnder(c *ownNode, name string, connection uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.doubtful, c.names, c.connection = false, []string{name}, connection
}

// epochSeen takes down the epoch of a queue.
func (o *ownNodes) epochSeen(queue string, epoch int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setEpoch(queue, epoch)
}

// nodeGone is for a name that was gone at some time after asked (see now). A claim made since
// stands under it anew, perhaps.
func (o *ownNodes) nodeGone(queue, name string, asked uint64) {
	_, seq, ok := driver.ParseName(name)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.queues[queue]; in != nil {
		// While a Replace is under way it may stand under the other name.
		if c := in.bySeq[seq]; c != nil && c.born <= asked && len(c.names) == 1 && c.names[0] == name {
			o.drop(c)
		}
	}
}

// queueListed compares what is owned with what is there: the sorted nodes of one incarnation of the
// queue as of that zxid. What was made later says nothing.
func (o *ownNodes) queueListed(queue string, epoch, zxid int64, nodes []driver.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.setEpoch(queue, epoch)
	in := o.queues[queue]
	if in == nil || epoch != in.epoch {
		return
	}
	for seq, c := range in.bySeq {
		_, there := slices.BinarySearchFunc(nodes, seq, func(n driver.Node, seq int64) int { return cmp.Compare(n.Seq, seq) })
		if !there && c.token <= zxid {
			o.drop(c)
		}
	}
}

// queueGone is listed for a queue that is not there, so that none of its nodes is.
func (o *ownNodes) queueGone(queue string, asked uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if in := o.queues[queue]; in != nil {
		for _, c := range in.bySeq {
			if c.born <= asked {
				o.drop(c)
			}
		}
	}
}
