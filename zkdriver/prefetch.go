package zkdriver

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// prefetch is a list of the queue that the driver sends right behind a create.
// A contender that is not alone in the queue needs such a list next, and a
// prefetch saves it a round trip before it holds the lock or watches its
// predecessor. prefetchPolicy decides for which creates that is worth a
// request.
//
// The list is an ordinary request, sent as soon as the create has been written,
// without waiting for its answer. A server answers the requests of a connection
// in order, so the list shows the new node, unless the connection breaks in
// between and the list is sent on another one. A list that does not show the
// new node is not used.
type prefetch struct {
	send   func()      // requests the list in the background
	cancel func() bool // prevents the call of send; returns false if that is too late

	done  chan struct{} // closed when nodes and err are set
	nodes []driver.Node
	err   error
}

// prefetch prepares a list of the queue, to be sent right behind the create of
// a node with this data.
func (s *session) prefetch(queue string, data []byte) *prefetch {
	p := &prefetch{done: make(chan struct{})}
	p.send = func() {
		s.conn.Go(func() { // if the session has ended, this does not run, and prefetched does not wait for it
			defer close(p.done)
			p.nodes, p.err = s.listNodes(queue)
		})
	}
	p.cancel = s.conn.AfterSend(data, func() { p.send() })
	return p
}

// prefetched returns the nodes ahead of the new node n. They are not known if
// the list does not show n, or if the session has ended.
func (s *session) prefetched(queue string, p *prefetch, n driver.Node) (ahead []driver.Node, known bool) {
	select {
	case <-p.done:
	case <-s.conn.Lease().Done():
		return nil, false
	}
	if i := slices.Index(p.nodes, n); i >= 0 {
		return p.nodes[:i], true
	}
	s.prefetchPolicy.useless(queue)
	return nil, false
}
