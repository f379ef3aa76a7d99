package zkdriver

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// follow is a list that follows a node. Who makes a node in a queue where others stand lists the queue next, which is
// one more round trip before he holds the lock, or watches who is in the way. Where that is expected (see
// crowds) the wire sends the request for the list right behind that for the node. A server answers the
// requests of a session in their order, so the list shows the node.
//
// A list has to show everything that the session has done and seen before it is asked for. This one does as long as nothing
// else has come from the server since, be it an answer or an event. Otherwise it is dropped, and
// the server is asked again.
type follow struct {
	path   string
	behind []byte        // data of the node that is made
	done   chan struct{} // closed when the answer is there, or will not come

	// Set before that.
	ok       bool
	received uint64 // what the link had received by then, this answer included
	names    []string
	stat     zk.Stat // Czxid, Pzxid and Aversion
}

// follows are those of a link.
type follows struct {
	mu      sync.Mutex
	unsent  []*follow
	arrived map[string]*follow // by path: its Create was answered; its own answer may be on its way
}

// maxArrived bounds the lists that nobody has come for yet.
const maxArrived = 16

// expect has a list of that path follow the request that holds this data.
func (fs *follows) expect(path string, data []byte) *follow {
	f := &follow{path: path, behind: data, done: make(chan struct{})}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.unsent = append(fs.unsent, f)
	return f
}

// behind returns what is to follow that request.
func (fs *follows) behind(request []byte) *follow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	i := slices.IndexFunc(fs.unsent, func(f *follow) bool { return bytes.Contains(request, f.behind) })
	if i < 0 {
		return nil
	}
	f := fs.unsent[i]
	fs.unsent = slices.Delete(fs.unsent, i, i+1)
	return f
}

// forget takes back what was expected, if its request was never sent.
func (fs *follows) forget(f *follow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if i := slices.Index(fs.unsent, f); i >= 0 {
		fs.unsent = slices.Delete(fs.unsent, i, i+1)
		close(f.done)
	}
}

// keep keeps a list that was sent until somebody takes it.
func (fs *follows) keep(f *follow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.arrived == nil || len(fs.arrived) >= maxArrived {
		fs.arrived = make(map[string]*follow)
	}
	fs.arrived[f.path] = f
}

// take returns the list of that path, or nil.
func (fs *follows) take(path string) *follow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.arrived[path]
	delete(fs.arrived, path)
	return f
}

// request returns the request as a frame.
func (f *follow) request(xid int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+4+4+len(f.path)+1))
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, opGetChildren)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.path)))
	b = append(b, f.path...)
	return append(b, 0) // no watch
}

// answered takes the reply, without its length in front. The shape was checked.
func (f *follow) answered(reply []byte, received uint64) {
	defer close(f.done)
	if failed := binary.BigEndian.Uint32(reply[12:]) != 0; failed {
		return
	}
	r := shape{rest: reply[replyStart:]}
	for range r.number() {
		f.names = append(f.names, string(r.skip(int(r.number()))))
	}
	stat := r.skip(statSize)
	f.stat.Czxid = int64(binary.BigEndian.Uint64(stat))
	f.stat.Aversion = int32(binary.BigEndian.Uint32(stat[4*8+2*4:]))
	f.stat.Pzxid = int64(binary.BigEndian.Uint64(stat[statSize-8:]))
	f.ok, f.received = true, received
}

// followed returns the list that has come with the last node of a queue, or no Stat if there is none that is as good
// as one that is asked for now.
func (s *session) followed(queue, path string) (names []string, stat *zk.Stat, err error) {
	f := s.link.follows.take(path)
	if f == nil {
		return nil, nil, nil
	}
	select {
	case <-f.done:
	case <-s.lease.Done():
		return nil, nil, s.lease.Err()
	}
	if !f.ok || s.link.received.Load() != f.received {
		s.crowds.hindered(queue)
		return nil, nil, nil
	}
	return f.names, &f.stat, nil
}
