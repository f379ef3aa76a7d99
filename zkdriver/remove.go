package zkdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Remove implements driver.Inspector. It reads the node, compares the token, and
// deletes the node unless it has changed since. It could remove another node
// only if an operator removed the queue between these two requests, and a
// client on the host of the node recreated the queue and a node of that name.
// Waiters do not take the removal for a release, because no write precedes it.
func (s *session) Remove(ctx context.Context, queue string, p driver.Place) error {
	if err := s.settings.checkPlace(queue, p); err != nil {
		return err
	}
	p.Name = s.settings.layout.stored(p.Name)
	return zkconn.AwaitErr(ctx, s.conn, func() error { return s.removeNode(s.queueOf(queue, p), p) })
}

func (s *session) removeNode(queue string, p driver.Place) error {
	path := s.settings.queuePath(queue) + "/" + p.Name
	for range 4 {
		n, err := s.readStored(queue, p.Name)
		switch {
		case err != nil:
			return explain(err, "look at", path, "READ on it")
		case n.token() != p.Token:
			return fmt.Errorf("zkdriver: remove %s: the node of that name has the token %d instead of %d: %w", zkconn.Printable(path), n.token(), p.Token, driver.ErrGone)
		case n.mine:
			return s.deleteNode(queue, p, s.removeAny)
		}
		r := s.own.beginRemoval(queue, p.Name)
		err = s.conn.Delete(path, n.stat.Version)
		s.own.endRemoval(queue, r)
		switch {
		case err == nil:
			return s.removedOtherNode(queue, p.Token, p.Name, r)
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion): // the node has changed since it was read: read it again
		default:
			return explain(err, "remove", path, "DELETE on the queue")
		}
	}
	return fmt.Errorf("zkdriver: remove %s: %w: the node keeps changing", zkconn.Printable(path), driver.ErrUnavailable)
}
