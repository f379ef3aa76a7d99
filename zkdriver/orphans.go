package zkdriver

import (
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// orphans is the list of Creates of a session that were not answered. The node
// of such a Create may exist or not, and its name is not known. But it belongs
// to this session and has the data of that call. While the session lives, the
// driver looks for the node until a server has answered; see removeOrphans.
// When the session ends, the store removes the node.
type orphans struct {
	mu          sync.Mutex
	lastCreated map[string]driver.Node // the last node that this session has created, by queue
	list        []orphan
	running     bool // whether a goroutine runs removeOrphans
}

// orphan is a Create that was not answered.
type orphan struct {
	queue, prefix string
	data          []byte
	after         driver.Node // the last node that this session had created in the queue when it sent the Create; zero if not known
}

// created records a node that this session has created.
func (o *orphans) created(queue string, n driver.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, known := o.lastCreated[queue]
	switch {
	case known && (n.Epoch < last.Epoch || n.Epoch == last.Epoch && n.Seq <= last.Seq):
		return
	case o.lastCreated == nil || !known && len(o.lastCreated) >= maxKnown:
		o.lastCreated = make(map[string]driver.Node)
	}
	o.lastCreated[queue] = n
}

// lastNode returns the last node that this session has created in a queue.
func (o *orphans) lastNode(queue string) driver.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastCreated[queue]
}

// add adds an orphan. Unless the goroutine that removes orphans already runs,
// add calls the function start to start it. The function start returns false if
// the Conn has shut down, so that no goroutine was started.
func (o *orphans) add(x orphan, start func() (started bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, x)
	if !o.running {
		o.running = start()
	}
}

// next returns the oldest orphan, which stays in the list until done is called.
// If the list is empty, next returns false, and the goroutine that removes
// orphans has to end.
func (o *orphans) next() (orphan, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.list) == 0 {
		o.running = false
		return orphan{}, false
	}
	return o.list[0], true
}

func (o *orphans) done() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = o.list[1:]
}
