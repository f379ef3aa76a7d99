package zkdriver

import (
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// orphans lists the Creates whose answer was lost. Their nodes may exist under
// unknown names and would then block the queue, so the driver searches for each
// until a server has answered. When the session ends, the store removes them
// anyway.
type orphans struct {
	mu          sync.Mutex
	lastCreated map[string]driver.Node // the last node that this session created, by queue
	list        []orphan
	running     bool // whether removeOrphans is running
}

type orphan struct {
	queue, prefix string
	data          []byte
	after         driver.Node // this session's last node in the queue before the Create; zero if unknown
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

// add adds an orphan. If no goroutine is removing orphans yet, add calls start,
// which returns false if the Conn has shut down.
func (o *orphans) add(x orphan, start func() (started bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, x)
	if !o.running {
		o.running = start()
	}
}

// next returns the oldest orphan, which stays in the list until done is called.
// It returns false if the list is empty; the calling goroutine must then exit.
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
