package zkdriver

import (
	"context"
	"crypto/rand"

	"github.com/dlock-go/dlock/driver"
)

// create creates a node and returns its place.
func create(ctx context.Context, s driver.Session, queue, prefix string, data []byte) (driver.Place, error) {
	j, err := s.Create(ctx, queue, driver.NodeSpec{Prefix: prefix, Data: data})
	return j.Place, err
}

// watchName watches the node that has the name, or the queue if name is empty.
func watchName(ctx context.Context, s driver.Session, queue, name string) (<-chan driver.Cause, error) {
	if name == "" {
		w, err := s.WatchQueue(ctx, queue)
		return w.C, err
	}
	return watchPlace(ctx, s, queue, driver.Place{Node: driver.Node{Name: name}})
}

// watchPlace watches one node.
func watchPlace(ctx context.Context, s driver.Session, queue string, p driver.Place) (<-chan driver.Cause, error) {
	w, err := s.Watch(ctx, queue, p)
	return w.C, err
}

// waitFor creates a node of the session. It watches that node together with the
// node of the given name, which is ahead of it.
func waitFor(ctx context.Context, s driver.Session, queue, ahead string) (<-chan driver.Cause, error) {
	own, err := create(ctx, s, queue, "waiter-W-", []byte(rand.Text()))
	if err != nil {
		return nil, err
	}
	w, err := s.Watch(ctx, queue, own, driver.Node{Name: ahead})
	return w.C, err
}
