package zkdriver

import "sync"

// prefetchPolicy decides which creates are followed by a prefetch. A prefetch
// pays off in a queue whose nodes rarely block a new contender, as among
// readers. A contender that has to wait gains nothing and may even lose time:
// if the lock is released right after the list was made, the contender tries to
// watch a node that is gone, and has to list again.
type prefetchPolicy struct {
	mu     sync.Mutex
	queues map[string]*queueHistory // queues in which other nodes were seen
	always bool                     // whether to prefetch with every create; for tests
}

type queueHistory struct {
	others     bool // whether the queue had other nodes at the last create
	prefetched bool // whether the last create had a prefetch
	useless    bool // whether the last prefetch saved no round trip
	skip       int  // number of creates to do without a prefetch after a useless one
	toSkip     int  // number of creates still to do without a prefetch
}

// maxSkip limits the creates without a prefetch that follow a useless one.
const maxSkip = 64

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

// adjust makes prefetches rarer after a useless one, and more frequent after a
// useful one.
func (h *queueHistory) adjust() {
	if h.useless || !h.others {
		h.skip = min(max(1, 2*h.skip), maxSkip)
	} else {
		h.skip /= 2
	}
	h.prefetched, h.toSkip = false, h.skip
}

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

// useless records that the last prefetch saved no round trip, because its list
// lacked the new node or the contender has to wait in any case.
func (p *prefetchPolicy) useless(queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.queues[queue]; h != nil {
		h.useless = true
	}
}
