package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Create implements driver.Session.
func (s *Session) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue), driver.CheckPrefix(n.Prefix)); err != nil {
		return driver.Joined{}, s.explain("create", queue, err)
	}
	c := Change{Kind: Create, Queue: queue, Prefix: n.Prefix, Data: bytes.Clone(n.Data), // the caller may reuse n.Data
		Number: s.number.Add(1), Predecessor: n.Predecessor}
	j, err := call(ctx, s, func(ctx context.Context) (driver.Joined, error) { return s.create(ctx, c) }, func(j driver.Joined, err error) {
		j.Watch.Stop()
		if err == nil {
			s.removeLate(Change{Kind: Delete, Queue: queue, Place: j.Place})
		}
	})
	if err = s.explain("create", queue, err); err != nil {
		j.Watch.Stop()
		return driver.Joined{}, err
	}
	return j, nil
}

// removeLate removes the node of a Create whose caller gave up early. If the
// store refuses, the node stays until the session ends.
func (s *Session) removeLate(c Change) {
	for {
		select {
		case s.slots <- struct{}{}:
		case <-s.lease.Done():
			return
		}
		_, err := s.do(s.life, c)
		<-s.slots
		if !errors.Is(err, driver.ErrUnavailable) || !Sleep(s.life, cancelPause) {
			return
		}
	}
}

func (s *Session) create(ctx context.Context, c Change) (j driver.Joined, err error) {
	arming := s.notices.record(c.Queue)
	defer s.stop(arming)
	r, err := s.do(ctx, c)
	if err != nil {
		if unknownOutcome(err) {
			s.orphan(c)
		}
		return j, err
	}
	s.watches.Changed(c.Queue)
	j.Place, j.Created = r.Place, r.Created
	all := contenders(r.Nodes)
	own := slices.Index(all, j.Node)
	if j.Known = own >= 0; j.Known {
		j.Ahead, j.Behind = all[:own:own], own < len(all)-1
		j.Watch = s.armCreated(ctx, arming, c, j, r)
	}
	return j, nil
}

// contenders skips nodes without a sequence, which other programs have made.
func contenders(all []Node) []driver.Node {
	nodes := make([]driver.Node, 0, len(all))
	for _, n := range all {
		if _, seq, ok := driver.ParseName(n.Name); ok {
			nodes = append(nodes, driver.Node{Name: n.Name, Seq: seq})
		}
	}
	slices.SortStableFunc(nodes, func(a, b driver.Node) int { return cmp.Compare(a.Seq, b.Seq) })
	return nodes
}

// armCreated arms the watch that Create returns. It makes a request only if the
// session might miss the removal of the node ahead.
func (s *Session) armCreated(ctx context.Context, a *arming, c Change, j driver.Joined, r Result) (w driver.Watch) {
	if c.Predecessor == nil || len(j.Ahead) == 0 {
		return w
	}
	i := c.Predecessor(slices.Clone(j.Ahead))
	if i < 0 {
		return w
	}
	ahead := j.Ahead[i]
	s.looks.know(c.Queue, r.Snapshot) // lets the next poll notice a release
	switch {
	case s.notifier == nil:
		w = s.watches.Arm(c.Queue, j.Place, ahead)
		s.looks.wake()
		return w
	case r.Announced == ahead.Name || r.Announced == Every:
		if w, ok := s.armAnnounced(a, j.Place, ahead, r.Nodes); ok {
			return w
		}
	}
	w, _ = s.watch(ctx, c.Queue, j.Place, ahead)
	return w
}

// orphans holds the Creates whose outcome is unknown.
type orphans struct {
	mu      sync.Mutex
	creates []Change
	running bool // whether cancelOrphans is running
}

// cancelsAtOnce limits how many Creates one request cancels. After the loss of
// a busy connection, cancelling one by one would block locks for too long.
const cancelsAtOnce = 100

func (s *Session) orphan(creates ...Change) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	o.creates = append(o.creates, creates...)
	if !o.running {
		o.running = s.group.Go(s.cancelOrphans)
	}
}

const cancelPause = 50 * time.Millisecond

// After an error, cancelOrphans cancels fewer Creates at once, because the
// error may concern only some of the nodes.
func (s *Session) cancelOrphans() {
	most := cancelsAtOnce
	for creates := s.nextOrphans(most); len(creates) > 0; creates = s.nextOrphans(most) {
		err := s.ask(s.life, func(ctx context.Context) error { return s.store.Cancel(ctx, creates) })
		if err == nil {
			most = min(2*most, cancelsAtOnce)
			continue
		}
		most = max(1, len(creates)/2)
		s.orphans.mu.Lock()
		s.orphans.creates = append(s.orphans.creates, creates...)
		s.orphans.mu.Unlock()
		if !Sleep(s.life, cancelPause) {
			return
		}
	}
}

func (s *Session) nextOrphans(most int) []Change {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.creates), most)
	next := o.creates[:n:n]
	o.creates = o.creates[n:]
	o.running = n > 0
	return next
}

// Sleep waits for d or until ctx ends, and reports whether it waited for d.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
