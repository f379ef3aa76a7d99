package zkdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Watch implements driver.Session. It watches each node's data, because a
// release begins with a write to the node. The server sets no watch for a
// missing node, so the driver then ends the driver.Watch itself. The server's
// answer for p shows whether another node has taken the name of p.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return driver.Watch{}, err
	}
	queue = s.queueOf(queue, p)
	path := s.settings.queuePath(queue)
	p.Name, ahead = s.settings.layout.stored(p.Name), s.settings.layout.storedNodes(ahead)
	paths := []string{path + "/" + p.Name}
	for _, n := range ahead {
		if err := checkName(n.Name); err != nil {
			return driver.Watch{}, err
		}
		paths = append(paths, path+"/"+n.Name)
	}
	sub := &subscriber{c: make(chan driver.Cause, 1)}
	err := s.subscribeAll(ctx, sub, paths, true, func(path string) (watchedNode, error) { return s.watchNode(queue, path) })
	if err != nil {
		return driver.Watch{}, err
	}
	s.watches.start(sub, p.Token)
	return s.watchOf(sub), nil
}

// WatchQueue implements driver.Session. It creates the queue's node if it is
// missing, and watches its children.
func (s *session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	if err := s.settings.checkQueue(queue); err != nil {
		return driver.Watch{}, err
	}
	sub := &subscriber{c: make(chan driver.Cause, 1)}
	queue, _ = s.queues.current(queue)
	path := s.settings.queuePath(queue)
	err := s.subscribeAll(ctx, sub, []string{path}, false, func(string) (watchedNode, error) { return watchedNode{}, s.watchQueue(queue) })
	if err != nil {
		return driver.Watch{}, err
	}
	return s.watchOf(sub), nil
}

func (s *session) watchOf(sub *subscriber) driver.Watch {
	return driver.NewWatch(sub.c, func() { s.watches.unsubscribe(sub) })
}

// subscribeAll subscribes to the watches of all paths and returns once the
// server has set them. If own is true, the first path is that of the
// contender's own node.
func (s *session) subscribeAll(ctx context.Context, sub *subscriber, paths []string, own bool, arm func(path string) (watchedNode, error)) error {
	if err := s.conn.AwaitConnection(ctx); err != nil {
		return err
	}
	var joined []*watch
	for i, path := range paths {
		w, first := s.watches.subscribe(path, sub, own && i == 0)
		joined = append(joined, w)
		if !first {
			continue
		}
		job := func() { s.arm(path, w, arm) }
		if ctx.Done() == nil && i == len(paths)-1 {
			job()
		} else {
			s.conn.Work(job)
		}
	}
	for i, w := range joined {
		if err := s.awaitArmed(ctx, paths[i], w); err != nil {
			s.watches.unsubscribe(sub)
			return err
		}
	}
	return nil
}

// arm asks the server for a watch. All callers waiting for the path share that
// request, so arm takes no context.
func (s *session) arm(path string, w *watch, arm func(path string) (watchedNode, error)) {
	asked := s.own.createdSoFar()
	node, err := arm(path)
	if errors.Is(err, zk.ErrNoNode) {
		s.watches.fire(path, driver.Changed) // the node is missing
		if queue, name, ok := s.settings.splitPath(path); ok {
			s.own.nodeGone(queue, name, asked)
		}
		err = nil
	}
	s.watches.answered(path, w, node, explain(err, "watch", path, "READ on it"))
}

func (s *session) awaitArmed(ctx context.Context, path string, w *watch) error {
	select {
	case <-w.armed:
		return w.err
	case <-ctx.Done():
		return fmt.Errorf("zkdriver: watch %s: %w", zkconn.Printable(path), ctx.Err())
	case <-s.Done():
		return s.Err()
	}
}

func (s *session) watchNode(queue, path string) (watchedNode, error) {
	stored, stat, err := s.conn.WatchData(path)
	if err != nil {
		return watchedNode{}, err
	}
	n := s.newStoredNode(path, "", stored, stat)
	return watchedNode{mine: n.mine, token: n.token(), trusted: s.trustsWrite(queue, n)}, nil
}

func (s *session) watchQueue(queue string) error {
	path := s.settings.queuePath(queue)
	for range 3 {
		err := s.conn.WatchChildren(path)
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		if err := s.makeQueue(queue); err != nil {
			return err
		}
	}
	return s.vanished(queue)
}
