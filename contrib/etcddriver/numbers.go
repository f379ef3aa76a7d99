package etcddriver

// numbers allocates the numbers in the keys of a session's nodes in one queue.
// Numbers are reused, because etcd lists a queue by visiting every key that the
// queue has had since the last compaction. If each node had a new key, every
// lock would slow down later ones.
type numbers struct {
	last int64 // highest number allocated so far
	free []int64
}

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

// giveBack frees the number of a removed node for a later node. It must not be
// called if an unanswered request may still create or remove a node with this
// number. session.mu must be held.
func (s *session) giveBack(queue string, number int64) {
	n := s.numbers[queue]
	n.free = append(n.free, number)
	if int64(len(n.free)) == n.last {
		delete(s.numbers, queue)
	}
}
