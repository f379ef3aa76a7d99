package zkdriver

import "sync"

// prefetchPolicy remembers in which queues a list is worth sending behind a create, see
// prefetch: where other nodes stand but most often block no contender, as with
// readers. A contender that has to wait anyway gains nothing by it, and may lose:
// the list shows a holder that leaves right after it.
type prefetchPolicy struct {
	mu     sync.Mutex
	queues map[string]*queueHistory // those in which others have stood
	always bool                     // a list is expected always, as tests want it
}

type queueHistory struct {
	others     bool // stood there when the last node was made
	prefetched bool // the list was sent behind the last create
	useless    bool // that list was of no use: the contender has to wait, or an answer or event came after it
	skip       int  // how many nodes are made without a list, after one that was of no use
	toSkip     int  // of them
}

// maxSkip bounds how long a queue in which it has been of no use does without.
const maxSkip = 64

// worthwhile reports whether a list is to be sent behind the next create.
func (p *prefetchPolicy) worthwhile(queue string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.queues[queue]
	if c == nil {
		return p.always
	}
	return c.worthwhile() || p.always
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

// adjust lengthens the pause if the last list was of no use, and shortens it otherwise.
func (h *queueHistory) adjust() {
	if h.useless || !h.others {
		h.skip = min(max(1, 2*h.skip), maxSkip)
	} else {
		h.skip /= 2
	}
	h.prefetched, h.toSkip = false, h.skip
}

// created takes down whether others stood in the queue when a node was made.
func (p *prefetchPolicy) created(queue string, others bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.queues[queue]
	if c == nil && others {
		if p.queues == nil || len(p.queues) >= maxKnown {
			p.queues = make(map[string]*queueHistory)
		}
		c = new(queueHistory)
		p.queues[queue] = c
	}
	if c != nil {
		c.others = others
	}
}

// useless says that the last list was of no use.
func (p *prefetchPolicy) useless(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.queues[queue]; c != nil {
		c.useless = true
	}
}
