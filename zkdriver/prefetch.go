package zkdriver

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// prefetch is a list that is sent right behind a create. A contender that is
// not alone in the queue needs a list next. Without a prefetch, that is one
// more round trip before the contender holds the lock or watches its
// predecessor. prefetchPolicy decides when a prefetch is worth its request.
//
// The list is an ordinary request. It is sent as soon as the create has been
// written, and does not wait for the create's answer. A server answers the
// requests of a connection in their order, so the list shows the new node. If
// the list went over another connection it may not show the node; it is not
// used then.
type prefetch struct {
	send   func()      // sends the list on a worker
	cancel func() bool // see zkconn.Conn.AfterSend

	done  chan struct{} // closed when the request has ended and the rest is set
	nodes []driver.Node
	err   error
}

// prefetch sends a list of the queue behind the create that contains this data.
func (s *session) prefetch(queue string, data []byte) *prefetch {
	p := &prefetch{done: make(chan struct{})}
	p.send = func() {
		s.conn.Go(func() { // unless the session has ended: no Create waits then
			defer close(p.done)
			p.nodes, p.err = s.listNodes(queue)
		})
	}
	p.cancel = s.conn.AfterSend(data, func() { p.send() })
	return p
}

// prefetched returns the nodes before a new one, if the list behind its create
// shows the new one.
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
