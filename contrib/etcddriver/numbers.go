package etcddriver

import "github.com/dlock-go/dlock/driver/session"

// numbers allocates the numbers in a session's keys in one queue. They are
// reused, because each new key slows down etcd's lists until the next
// compaction. A number is not reused while a request that removes its key may
// still arrive.
type numbers struct {
	last int64 // highest number allocated so far
	used int
	free []int64
}

func (b *backend) take(c session.Change) *node {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.numbers[c.Queue]
	if q == nil {
		q = &numbers{last: b.lost}
		b.numbers[c.Queue] = q
	}
	q.used++
	n := &node{queue: c.Queue, data: c.Data, uses: 1}
	if i := len(q.free) - 1; i >= 0 {
		n.number, q.free = q.free[i], q.free[:i]
	} else {
		q.last++
		n.number = q.last
	}
	b.sent[c.Number] = n
	return n
}

// giveBack frees the numbers of Creates that have made no node, and never will.
func (b *backend) giveBack(creates ...session.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range creates {
		b.release(b.sent[c.Number])
		delete(b.sent, c.Number)
	}
}

func (b *backend) forget(token int64, n *node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.own[token] == n {
		delete(b.own, token)
		b.release(n)
	}
}

// release ends one use of a node's number. backend.mu must be held.
func (b *backend) release(n *node) {
	if n.uses--; n.uses > 0 {
		return
	}
	q := b.numbers[n.queue]
	if n.lost {
		b.lost = max(b.lost, n.number)
	} else {
		q.free = append(q.free, n.number)
	}
	if q.used--; q.used == 0 {
		delete(b.numbers, n.queue)
	}
}
