package zkdriver

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// Isolate implements driver.Isolator. The returned connector keeps everything
// below a node of its own under the chroot.
func (c *connector) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	s := *c.settings
	s.chroot += "/" + i.Name
	s.dial = i.Dial
	if i.SessionTimeout > 0 {
		s.sessionTimeout = i.SessionTimeout
	}
	whole := *c.settings
	return &connector{settings: &s}, func(ctx context.Context) error { return removeTree(ctx, &whole, s.chroot) }, nil
}

func removeTree(ctx context.Context, settings *settings, root string) error {
	s, err := connect(ctx, settings)
	if err != nil {
		return err
	}
	defer s.Close()
	return zkconn.AwaitErr(ctx, s.conn, func() error {
		err := s.removeBelow(ctx, root)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		return explain(err, "remove", root, "READ on it, and DELETE on its parent")
	})
}

func (s *session) removeBelow(ctx context.Context, node string) error {
	children, _, err := s.conn.Children(node)
	for _, child := range children {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = s.removeBelow(ctx, node+"/"+child)
		}
		if errors.Is(err, zk.ErrNoNode) { // the server has removed the child, an empty container
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return s.conn.Delete(node, -1)
}

// Lease returns the session's lease, for the conformance kit.
func (s *session) Lease() *driver.Lease { return s.conn.Lease() }
