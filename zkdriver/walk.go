package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
)

// Walk implements driver.Walker. It asks for one node after the other, and finds the queues
// that hold nodes. What may not be read below prefix is left out.
func (s *session) Walk(ctx context.Context, prefix string) ([]string, error) {
	if prefix != "" {
		if err := s.settings.checkQueue(prefix); err != nil {
			return nil, err
		}
	}
	return await(ctx, s, func() ([]string, error) { return s.walk(ctx, prefix) }, nil)
}

func (s *session) walk(ctx context.Context, prefix string) (queues []string, err error) {
	for left := []string{prefix}; len(left) > 0; {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("zkdriver: %w", err)
		}
		name := left[len(left)-1]
		left = left[:len(left)-1]
		children, err := s.childrenOf(name)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			continue
		case errors.Is(err, zk.ErrNoAuth) && name != prefix:
			continue
		case err != nil:
			return nil, s.explain(err, "list", s.settings.chroot+"/"+name, "READ on it")
		}
		found := false
		for _, child := range children {
			if _, _, sequenced := driver.ParseName(child); sequenced {
				found = true
				continue
			}
			below := child
			if name != "" {
				below = name + "/" + child
			}
			if s.settings.checkQueue(below) == nil {
				left = append(left, below)
			}
		}
		if found && name != "" {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues, nil
}

func (s *session) childrenOf(name string) ([]string, error) {
	path := s.settings.chroot
	if name != "" {
		path = s.settings.queuePath(name)
	}
	if path == "" {
		path = "/"
	}
	children, _, err := s.children(path)
	return children, err
}
