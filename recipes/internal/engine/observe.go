package engine

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// WatchQueue watches the whole queue, and then lists it. In this order, a
// change that the list does not show ends the watch.
func (e *Entry) WatchQueue(ctx context.Context) (driver.Watch, []driver.Node, error) {
	watch, err := e.session.WatchQueue(ctx, e.queue.Name)
	if err != nil {
		return driver.Watch{}, nil, err
	}
	nodes, err := e.session.List(ctx, e.queue.Name)
	if err != nil {
		watch.Stop()
	}
	return watch, nodes, err
}
