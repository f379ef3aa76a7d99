package entry

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// WatchAndList watches and lists the queue. It arms the watch first, so that no
// change after the list is missed.
func (s *Grants) WatchAndList(ctx context.Context, queue string) (driver.Watch, []driver.Node, error) {
	watch, err := s.WatchQueue(ctx, queue)
	if err != nil {
		return driver.Watch{}, nil, err
	}
	nodes, err := s.List(ctx, queue)
	if err != nil {
		watch.Stop()
		return driver.Watch{}, nil, err
	}
	return watch, nodes, nil
}
