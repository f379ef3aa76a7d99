package zkdriver

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// prefetch is a list that is sent right behind a create. A contender that is not
// alone lists the queue next, which is one more round trip before it holds the
// lock, or watches its predecessor. crowds tells where a prefetch is worth its
// request.
//
// The list is an ordinary request. The wire starts it when it has written the
// create, so the list does not wait for the create's answer. A server answers
// the requests of a connection in their order, so the list shows the node.
//
// A List has to show everything that the session has done and seen before it is
// called. A prefetch does so as long as its answer, on the connection of the
// create, is the last that has come from the server, be it an answer or an
// event. Any other prefetch is dropped, and List asks the server.
type prefetch struct {
	path   string
	behind []byte // data of the create
	start  func() // sends the list, on another goroutine

	received atomic.Uint64 // link.received once the answer has come; 0 where it came on another connection

	done  chan struct{} // closed when the request has ended, and the rest is set
	names []string
	stat  *zk.Stat
	err   error
}

// prefetches are those of a link.
type prefetches struct {
	mu      sync.Mutex
	unsent  []*prefetch          // their creates have not been written
	arrived map[string]*prefetch // by path: the create was answered, the list may not be
}

// maxArrived bounds the lists that no List has come for yet.
const maxArrived = 16

// prefetch has a list of that path follow the create that holds this data.
func (s *session) prefetch(path string, data []byte) *prefetch {
	p := &prefetch{path: path, behind: data, done: make(chan struct{})}
	p.start = func() {
		s.workers.run(func() { // unless the session has ended: no List waits then
			defer close(p.done)
			p.names, p.stat, p.err = s.children(path)
		})
	}
	s.link.prefetches.expect(p)
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

// forget takes back a prefetch whose create was never written.
func (ps *prefetches) forget(p *prefetch) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.unsent = slices.DeleteFunc(ps.unsent, func(other *prefetch) bool { return other == p })
}

// keep keeps a prefetch, whose create was answered, for the next List.
func (ps *prefetches) keep(p *prefetch) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.arrived == nil || len(ps.arrived) >= maxArrived {
		ps.arrived = make(map[string]*prefetch)
	}
	ps.arrived[p.path] = p
}

// take returns the prefetch of that path, or nil.
func (ps *prefetches) take(path string) *prefetch {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.arrived[path]
	delete(ps.arrived, path)
	return p
}

// prefetched returns the list that was sent behind the last create in a queue.
// It returns no Stat if there is none that is as good as one that is asked for
// now.
func (s *session) prefetched(queue, path string) (names []string, stat *zk.Stat, err error) {
	p := s.link.prefetches.take(path)
	if p == nil {
		return nil, nil, nil
	}
	select {
	case <-p.done:
	case <-s.lease.Done():
		return nil, nil, s.lease.Err()
	}
	if p.err != nil || p.received.Load() != s.link.received.Load() {
		s.crowds.hindered(queue)
		return nil, nil, nil
	}
	return p.names, p.stat, nil
}
