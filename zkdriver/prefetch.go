package zkdriver

import (
	"slices"

	"github.com/dlock-go/dlock/driver"
)

// prefetch is a list of the queue that the driver sends directly after a
// create. A contender that is not alone in the queue needs such a list next.
// Without a prefetch, the list takes one more round trip before the contender
// holds the lock or watches its predecessor. prefetchPolicy decides for which
// creates that is worth a request.
//
// The list is an ordinary request. It is sent as soon as the create has been
// written, and does not wait for the create's answer. A server answers the
// requests of a connection in their order, so the list shows the new node. But
// if the connection breaks between the two requests, the list is sent on
// another connection, and may not show the new node. A list that does not show
// the new node is not used.
type prefetch struct {
	send   func()      // requests the list on a goroutine of the Conn, and does not wait for it
	cancel func() bool // prevents the call of send; returns false if send was called, or is about to be called

	done  chan struct{} // closed when the request has ended and nodes and err are set
	nodes []driver.Node
	err   error
}

// prefetch prepares a list of the queue. The list is sent directly after the
// create of a node with this data.
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

// prefetched returns the nodes ahead of the new node n. The result known is
// false if the list does not show n, or if the session has ended.
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
