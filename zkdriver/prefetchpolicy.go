package zkdriver

import "sync"

// prefetchPolicy decides for which creates a prefetch is worth its request. A
// prefetch helps in a queue whose other nodes most often do not block the new
// contender, as among readers. It does not help a contender that has to wait
// anyway. It may even cost time: if a holder releases the lock just after the
// list was made, the contender tries to watch a node that is already gone, and
// then needs another list.
type prefetchPolicy struct {
	mu     sync.Mutex
	queues map[string]*queueHistory // the queues in which other nodes were seen
	always bool                     // for tests: every create has a prefetch
}

// queueHistory is what a session remembers of its last creates in a queue.
type queueHistory struct {
	others     bool // whether the queue had other nodes when the last node was created
	prefetched bool // whether the last create had a prefetch
	useless    bool // whether the last prefetch did not help
	skip       int  // how many creates have no prefetch after a prefetch that did not help
	toSkip     int  // how many of these creates are still to come
}

// maxSkip bounds the number of creates without a prefetch that follow a
// prefetch which did not help.
const maxSkip = 64

// worthwhile reports whether the next create is to have a prefetch.
func (p *prefetchPolicy) worthwhile(queue string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.queues[queue]
	if h == nil {
		return p.always
	}
	return h.worthwhile() || p.always
}

func (h *queueHistory) worthwhile() bool {
	if h.prefetched {
		h.adjust()
	}
	switch {
	case !h.others:
		return false
	case h.toSkip > 0:
		h.toSkip--
		return false
	}
	h.prefetched, h.useless = true, false
	return true
}

// adjust raises skip if the last prefetch did not help, and lowers it
// otherwise.
func (h *queueHistory) adjust() {
	if h.useless || !h.others {
		h.skip = min(max(1, 2*h.skip), maxSkip)
	} else {
		h.skip /= 2
	}
	h.prefetched, h.toSkip = false, h.skip
}

// created records whether the queue had other nodes when a node was created.
func (p *prefetchPolicy) created(queue string, others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.queues[queue]
	if h == nil && others {
		if p.queues == nil || len(p.queues) >= maxKnown {
			p.queues = make(map[string]*queueHistory)
		}
		h = new(queueHistory)
		p.queues[queue] = h
	}
	if h != nil {
		h.others = others
	}
}

// useless records that the last prefetch did not help: its list does not show
// the new node, or the contender has to wait anyway.
func (p *prefetchPolicy) useless(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.queues[queue]; h != nil {
		h.useless = true
	}
}
