package zkdriver

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// prefetch is a request to list the queue, sent directly after a create. A
// contender that is not alone in the queue needs that list next, so the
// prefetch saves it a round trip. prefetchPolicy decides when that is worth a
// request.
//
// The list is sent as soon as the create has been written, without waiting for
// its answer. A server answers the requests of a connection in order, so the
// list normally shows the new node. If the connection breaks in between, the
// list may lack the node, and is not used.
type prefetch struct {
	send   func()      // requests the list in the background
	cancel func() bool // prevents the call of send; returns false if it is too late for that

	done  chan struct{} // closed when nodes and err are set
	nodes []driver.Node
	err   error
}

func (s *session) prefetch(queue string, data []byte) *prefetch {
	p := &prefetch{done: make(chan struct{})}
	p.send = func() {
		s.conn.Go(func() { // does not run if the session has ended, which prefetched detects itself
			defer close(p.done)
			p.nodes, p.err = s.listNodes(queue)
		})
	}
	p.cancel = s.conn.AfterSend(data, func() { p.send() })
	return p
}

// prefetched waits for the list and returns the nodes in it that are ahead of
// the new node n, and whether there are nodes behind it. If known is false, the
// list lacks n or the session has ended.
func (s *session) prefetched(queue string, p *prefetch, n driver.Node) (ahead []driver.Node, behind, known bool) {
	select {
	case <-p.done:
	case <-s.conn.Lease().Done():
		return nil, false, false
	}
	if i := slices.Index(p.nodes, n); i >= 0 {
		return p.nodes[:i], i < len(p.nodes)-1, true
	}
	s.prefetchPolicy.useless(queue)
	return nil, false, false
}
