package recipes

// holds is a doubly linked list of holds that allocates nothing. A hold is in one list at most.
// The zero value is an empty list.
type holds struct {
	root links // next is the first, prev the last
}

type links struct {
	prev, next *links
	hold       *hold
}

func (l *holds) init() {
	if l.root.next == nil {
		l.root.next, l.root.prev = &l.root, &l.root
	}
}

// push appends h, which is in no list.
func (l *holds) push(h *hold) {
	l.init()
	n := &h.links
	n.hold = h
	n.prev, n.next = l.root.prev, &l.root
	n.prev.next, n.next.prev = n, n
}

// first returns the hold that was pushed first, or nil.
func (l *holds) first() *hold {
	l.init()
	return l.root.next.hold
}

func (l *holds) all() []*hold {
	l.init()
	var all []*hold
	for n := l.root.next; n != &l.root; n = n.next {
		all = append(all, n.hold)
	}
	return all
}

// unlink takes h out of its list, if it is in one.
func (h *hold) unlink() {
	n := &h.links
	if n.next == nil {
		return
	}
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}
