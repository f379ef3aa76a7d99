package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
	"github.com/go-zookeeper/zk"
)

// Walk implements driver.Inspector. It reads the nodes one by one and returns the
// queues that have contenders. It skips nodes that this user may not read, but
// returns an error if the node of prefix is one of them.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	if prefix != "" {
		if err := s.settings.checkQueue(prefix); err != nil {
			return nil, err
		}
	}
	return zkconn.Await(ctx, s.conn, func() ([]string, error) { return s.walk(ctx, prefix) }, nil)
}

func (s *session) walk(ctx context.Context, prefix string) (queues []string, err error) {
	for left := []string{prefix}; len(left) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("zkdriver: %w", err)
		}
		name := left[len(left)-1]
		left = left[:len(left)-1]
		children, _, err := s.conn.Children(s.walkPath(name))
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case errors.Is(err, zk.ErrNoAuth) && name != prefix:
			continue
		case err != nil:
			return nil, explain(err, "list", s.walkPath(name), "READ on it")
		}
		found := false
		for _, child := range children {
			if _, contender := sequenceOf(child); contender {
				found = true
				continue
			}
			below := unescapeSegment(child)
			if name != "" {
				below = name + "/" + below
			}
			if child == successor && name != "" || s.settings.checkQueue(below) == nil {
				left = append(left, below)
			}
		}
		if before, ok := predecessorOf(name); ok {
			name = before
		}
		if found && name != "" {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues), nil
}

func (s *session) walkPath(name string) string {
	switch {
	case name != "":
		return s.settings.queuePath(name)
	case s.settings.chroot != "":
		return s.settings.chroot
	}
	return "/"
}
