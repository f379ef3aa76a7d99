package zkdriver

import (
	"bytes"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// prefetch is a list that is sent right behind a create. A contender that is not
// alone needs the list next, which is one more round trip before it holds the
// lock, or watches its predecessor. crowds tells where a prefetch is worth its
// request.
//
// The list is an ordinary request. The wire starts it when it has written the
// create, so the list does not wait for the create's answer. A server answers
// the requests of a connection in their order, so the list shows the node. A
// list that does not show it, because it went by another connection, is dropped.
type prefetch struct {
	behind []byte // data of the create
	start  func() // sends the list, on another goroutine

	done  chan struct{} // closed when the request has ended, and the rest is set
	nodes []driver.Node
	err   error
}

// prefetches are those of a link whose creates have not been written.
type prefetches struct {
	mu     sync.Mutex
	unsent []*prefetch
}

// prefetch has a list of the queue follow the create that holds this data.
func (s *session) prefetch(queue string, data []byte) *prefetch {
	p := &prefetch{behind: data, done: make(chan struct{})}
	p.start = func() {
		s.workers.run(func() { // unless the session has ended: no Create waits then
			defer close(p.done)
			p.nodes, p.err = s.listNodes(queue)
		})
	}
	s.dialer.sendHooks.expect(p)
	return p
}

func (ps *prefetches) expect(p *prefetch) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.unsent = append(ps.unsent, p)
}

// sent returns the prefetch that is to follow this request, or nil.
func (ps *prefetches) sent(request []byte) *prefetch {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	i := slices.IndexFunc(ps.unsent, func(p *prefetch) bool { return bytes.Contains(request, p.behind) })
	if i < 0 {
		return nil
	}
	p := ps.unsent[i]
	ps.unsent = slices.Delete(ps.unsent, i, i+1)
	return p
}

// forget takes back a prefetch whose create was never written. It reports
// whether there was one.
func (ps *prefetches) forget(p *prefetch) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	i := slices.Index(ps.unsent, p)
	if i >= 0 {
		ps.unsent = slices.Delete(ps.unsent, i, i+1)
	}
	return i >= 0
}

// prefetched returns the nodes before a new one, if the list behind its create
// shows the new one.
func (s *session) prefetched(queue string, p *prefetch, n driver.Node) (ahead []driver.Node, known bool) {
	select {
	case <-p.done:
	case <-s.lease.Done():
		return nil, false
	}
	if i := slices.Index(p.nodes, n); i >= 0 {
		return p.nodes[:i], true
	}
	s.prefetchPolicy.useless(queue)
	return nil, false
}
