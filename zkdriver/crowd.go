package zkdriver

import "sync"

// crowds remembers in which queues a list is worth asking for along with a node, see follow: where
// others stand, but most often nobody is in the way, as with readers. Whoever has to wait anyway gains
// nothing by it, and may lose: the one in the way has gone a moment later.
type crowds struct {
	mu     sync.Mutex
	queues map[string]*crowd // those in which others have stood
	eager  bool              // a list is expected always, as tests want it
}

type crowd struct {
	others   bool // stood there when the last node was made
	followed bool // the list was asked for along with the last node
	hindered bool // it was of no use: somebody was in the way, or it came too late; nor is it where nobody stood
	pause    int  // how many nodes are made without it, after one that was of no use
	left     int  // of them
}

// maxPause bounds how long a queue in which it has been of no use does without.
const maxPause = 64

// expected tells whether the list is to be asked for along with a node that is about to be made.
func (cs *crowds) expected(queue string) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.queues[queue]
	if c == nil {
		return cs.eager
	}
	return c.expected() || cs.eager
}

func (c *crowd) expected() bool {
	if c.followed {
		c.judge()
	}
	switch {
	case !c.others:
		return false
	case c.left > 0:
		c.left--
		return false
	}
	c.followed, c.hindered = true, false
	return true
}

// judge lengthens the pause if the last list was of no use, and shortens it otherwise.
func (c *crowd) judge() {
	if c.hindered || !c.others {
		c.pause = min(max(1, 2*c.pause), maxPause)
	} else {
		c.pause /= 2
	}
	c.followed, c.left = false, c.pause
}

// met takes down whether others stood in the queue when a node was made.
func (cs *crowds) met(queue string, others bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.queues[queue]
	if c == nil && others {
		if cs.queues == nil || len(cs.queues) >= maxKnown {
			cs.queues = make(map[string]*crowd)
		}
		c = new(crowd)
		cs.queues[queue] = c
	}
	if c != nil {
		c.others = others
	}
}

// hindered says that the last list was of no use.
func (cs *crowds) hindered(queue string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.queues[queue]; c != nil {
		c.hindered = true
	}
}
