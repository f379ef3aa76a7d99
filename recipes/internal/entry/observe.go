package entry

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Observe calls see with the nodes of the queue, at once and after each change.
// It returns when see returns false, or when ctx or the session ends. It retries
// requests that fail.
func (e *Entry) Observe(ctx context.Context, see func(nodes []driver.Node) (more bool)) {
	pause := Retries{New: e.queue.BackOff}
	idle := 0 // consecutive watches that ended early
	for ctx.Err() == nil && !e.SessionOver() {
		began := time.Now()
		watch, nodes, err := e.session.WatchAndList(ctx, e.queue.Name)
		if err != nil {
			Sleep(pause.NextEndless(), ctx.Done())
			continue
		}
		pause.Succeeded()
		if !see(nodes) {
			watch.Stop()
			return
		}
		select {
		case <-watch.C:
		case <-ctx.Done():
		}
		watch.Stop()
		if idle++; time.Since(began) > early {
			idle = 0
		}
		Throttle(idle, ctx.Done())
	}
}

// WatchAndList watches and lists the queue. It arms the watch first, so that no
// change after the list is missed.
func (s *Session) WatchAndList(ctx context.Context, queue string) (driver.Watch, []driver.Node, error) {
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
