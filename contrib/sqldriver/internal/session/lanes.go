package session

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// lanes holds the lanes of the session's nodes. See [Lane].
type lanes struct {
	mu      sync.Mutex
	over    bool        // the session has ended
	useless atomic.Bool // set after ErrMoved; the session then uses no lanes
	of      map[nodeKey]*nodeLane
	waiting map[string]int // number of goroutines waiting on lanes, by queue
}

// nodeKey identifies a node of the session. Nodes of different queues may have
// the same token.
type nodeKey struct {
	queue string
	token int64
}

type nodeLane struct {
	lane Lane               // nil once it has failed
	stop context.CancelFunc // ends the goroutine that waits on the lane; nil if there is none
	done chan struct{}      // closed when that goroutine has left the lane
	late bool               // a watch was armed too late for that goroutine to notify it
}

func (l *lanes) init() { l.of, l.waiting = make(map[nodeKey]*nodeLane), make(map[string]int) }

// keep records the lane of a new node, or closes it if the session has ended.
func (l *lanes) keep(node nodeKey, lane Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		lane.Leave(driver.ErrSessionEnded)
		return
	}
	l.of[node] = &nodeLane{lane: lane}
}

func (l *lanes) has(node nodeKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[node] != nil
}

// take removes a node's lane from l and returns it, or nil if the node has
// none. If a goroutine is waiting on the lane, take closes the connection,
// because nothing else ends the wait at once.
func (l *lanes) take(node nodeKey) Lane {
	l.mu.Lock()
	n := l.of[node]
	if n == nil {
		l.mu.Unlock()
		return nil
	}
	delete(l.of, node)
	stop := n.stop
	l.mu.Unlock()
	if stop != nil {
		stop()
		<-n.done
	}
	return n.lane
}

// close closes all lanes, because the session has ended.
func (l *lanes) close() {
	l.mu.Lock()
	l.over = true
	nodes := slices.Collect(maps.Keys(l.of))
	l.mu.Unlock()
	for _, node := range nodes {
		if lane := l.take(node); lane != nil {
			lane.Leave(driver.ErrSessionEnded)
		}
	}
}

// createOnLane creates a node. The node gets a lane if a connection can be
// spared; otherwise lane is nil.
func (s *Session) createOnLane(ctx context.Context, op Op, queue, prefix string, data []byte) (token int64, nodes []Row, lane Lane, err error) {
	if b, ok := s.store.(Blocker); ok && !s.lanes.useless.Load() {
		lane = b.Lane(ctx)
	}
	if lane == nil {
		token, nodes, err = s.store.Create(ctx, op, queue, prefix, data)
		return token, nodes, nil, err
	}
	token, nodes, ok, err := lane.Create(ctx, op, queue, prefix, data)
	if err != nil || !ok {
		lane.Leave(err)
		return token, nodes, nil, err
	}
	return token, nodes, lane, nil
}

// endLane gives up a lane whose last method has returned err. It returns err,
// except that after ErrMoved it returns nil and the session stops using lanes.
func (s *Session) endLane(lane Lane, err error) error {
	lane.Leave(err)
	if !errors.Is(err, ErrMoved) {
		return err
	}
	if !s.lanes.useless.Swap(true) {
		slog.Default().Warn(s.name+": waiters poll, because "+ErrMoved.Error(), "server", s.store.Server())
	}
	return nil
}

// cover reports whether a goroutine waits on a lane for each of the queue's
// watches, so that the queue need not be polled.
func (l *lanes) cover(queue string, watches int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting[queue] >= watches
}

// waitOnLane starts a goroutine that waits, on the lane of node p, for the end
// of the lane of the node ahead. It returns false if p has no lane or such a
// goroutine is already running. The caller must have armed a watch for both
// nodes.
func (s *Session) waitOnLane(queue string, p driver.Place, ahead driver.Node) bool {
	l := &s.lanes
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of[nodeKey{queue, p.Token}]
	if n != nil && n.stop != nil {
		n.late = true
	}
	if n == nil || n.lane == nil || n.stop != nil {
		return false
	}
	ctx, stop := context.WithCancel(s.ended)
	done := make(chan struct{})
	if !s.calls.Go(func() { s.awaitAhead(ctx, n, queue, p, ahead, done) }) {
		stop()
		return false
	}
	n.stop, n.done, n.late = stop, done, false
	l.waiting[queue]++
	return true
}

// awaitAhead waits until the node ahead is gone or has no lane. If that node is
// not gone, awaitAhead makes the session poll instead.
func (s *Session) awaitAhead(ctx context.Context, n *nodeLane, queue string, p driver.Place, ahead driver.Node, done chan struct{}) {
	held, gone, err := true, false, error(nil)
	for held && err == nil && ctx.Err() == nil {
		held, gone, err = s.await(ctx, n.lane, queue, p, ahead)
	}
	if err != nil {
		_ = s.endLane(n.lane, err)
	}
	l := &s.lanes
	l.mu.Lock()
	if err != nil {
		n.lane = nil
	}
	n.stop()
	n.stop = nil
	late := n.late
	l.waiting[queue]--
	l.mu.Unlock()
	close(done)
	if !gone || late {
		s.looks.wake()
	}
}

// errHeld makes LookReleased leave the watches unchanged.
var errHeld = errors.New("the lane of the node ahead has not ended")

// await calls lane.Await once and notifies the watches of changes. It reports
// whether the node ahead still has its lane, and whether that node is gone.
func (s *Session) await(ctx context.Context, lane Lane, queue string, p driver.Place, ahead driver.Node) (held, gone bool, err error) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	before := Snapshot{Nodes: []Row{{Name: ahead.Name}}}
	err = s.watches.LookReleased(queue, func() ([]driver.Place, driver.Node, any, error) {
		now, stillHeld, err := lane.Await(ctx, s.id, queue, p.Token, ahead.Seq, s.watches.Names(queue))
		if held = stillHeld; held && err == nil {
			err = errHeld
		}
		gone = err == nil && !slices.ContainsFunc(now.Nodes, func(r Row) bool { return r.Name == ahead.Name })
		return places(now), releasedSince(before, now), nil, err
	})
	if errors.Is(err, ErrUnknownSession) {
		s.lease.End(err)
	}
	if err == errHeld {
		err = nil
	}
	return held, gone, err
}
