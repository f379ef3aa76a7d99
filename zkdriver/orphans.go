package zkdriver

import (
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// orphans is a session's list of unanswered Creates. The node of such a Create
// may exist, under an unknown name, but it belongs to this session and has the
// data of that call. While the session lives, the driver looks for the node
// until a server has answered (see removeOrphans). When the session ends, the
// store removes it.
type orphans struct {
	mu          sync.Mutex
	lastCreated map[string]driver.Node // the last node that this session created, by queue
	list        []orphan
	running     bool // whether removeOrphans is running
}

// orphan is an unanswered Create.
type orphan struct {
	queue, prefix string
	data          []byte
	after         driver.Node // the session's last node in the queue when the Create was sent; zero if unknown
}

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

func (o *orphans) lastNode(queue string) driver.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastCreated[queue]
}

// add adds an orphan, and calls start unless removeOrphans is running already.
// If start returns false, the Conn has shut down and no goroutine was started.
func (o *orphans) add(x orphan, start func() (started bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, x)
	if !o.running {
		o.running = start()
	}
}

// next returns the oldest orphan, which stays in the list until done is called.
// If there is none, it returns false, and the goroutine must exit.
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
