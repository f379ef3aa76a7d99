package etcddriver

// numbers holds the numbers of a session's nodes in one queue. The key of a node has
// its number. When a node has gone, the next node takes its number, and so its key.
//
// The reason: when etcd lists a queue, it looks at every key that the queue has had
// since the history was compacted. If each node had a key of its own, each lock would
// make all later ones slower.
type numbers struct {
	last int64 // the greatest number that was taken
	free []int64
}

// take returns a number that no node of the session in the queue has.
func (s *session) take(queue string) (number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.numbers[queue]
	if n == nil {
		n = new(numbers)
		s.numbers[queue] = n
	}
	if i := len(n.free) - 1; i >= 0 {
		number, n.free = n.free[i], n.free[:i]
		return number
	}
	n.last++
	return n.last
}

// giveBack frees a number for the next node. It is called when the node has gone, and
// no request that is still under way can make or remove a node with this number. A
// number for which this cannot be known is not used again: see remove.
func (s *session) giveBack(queue string, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.numbers[queue]
	n.free = append(n.free, number)
	if int64(len(n.free)) == n.last {
		delete(s.numbers, queue)
	}
}
