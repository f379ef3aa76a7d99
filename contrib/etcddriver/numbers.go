package etcddriver

// numbers allocates the numbers in the keys of a session's nodes in one queue.
// They are reused, because etcd lists a queue by visiting every key it has had
// since the last compaction. With a new key for each node, every lock would
// slow down later ones.
type numbers struct {
	last int64 // highest number allocated so far
	free []int64
}

// take allocates a number for a node in the queue.
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

// giveBack frees the number of a removed node. No request in flight may still
// create or remove a node with this number; otherwise the number must be
// leaked.
func (s *session) giveBack(queue string, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.numbers[queue]
	n.free = append(n.free, number)
	if int64(len(n.free)) == n.last {
		delete(s.numbers, queue)
	}
}
