package zkdriver

import "sync"

// crowds remembers in which queues a list is worth sending behind a create, see
// prefetch: where other nodes stand but most often block no contender, as with
// readers. A contender that has to wait anyway gains nothing by it, and may lose:
// the list shows a holder that leaves right after it.
type crowds struct {
	mu     sync.Mutex
	queues map[string]*crowd // those in which others have stood
	eager  bool              // a list is expected always, as tests want it
}

type crowd struct {
	others     bool // stood there when the last node was made
	prefetched bool // the list was sent behind the last create
	hindered   bool // that list was of no use: the contender has to wait, or an answer or event came after it
	pause      int  // how many nodes are made without a list, after one that was of no use
	left       int  // of them
}

// maxPause bounds how long a queue in which it has been of no use does without.
const maxPause = 64

// expected reports whether a list is to be sent behind the next create.
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
	if c.prefetched {
		c.judge()
	}
	switch {
	case !c.others:
		return false
	case c.left > 0:
		c.left--
		return false
	}
	c.prefetched, c.hindered = true, false
	return true
}

// judge lengthens the pause if the last list was of no use, and shortens it otherwise.
func (c *crowd) judge() {
	if c.hindered || !c.others {
		c.pause = min(max(1, 2*c.pause), maxPause)
	} else {
		c.pause /= 2
	}
	c.prefetched, c.left = false, c.pause
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
