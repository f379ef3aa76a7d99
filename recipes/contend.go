package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watchOwnAfter is how long a contender waits before its own node is watched too. Brief waits
// do without: whoever is let in looks at the queue first and sees its node there.
const watchOwnAfter = 300 * time.Millisecond

// contender is an attempt that has a node in the queue.
type contender struct {
	*attempt
	session *session
	place   driver.Place
	own     <-chan driver.Cause // the watch of one's own node; nil until it is armed
	timer   *time.Timer         // until it is to be armed; nil where it is not needed
	idle    int                 // wake-ups in a row that have changed nothing
}

// queue waits until nobody is in the way of the node. It returns nil then, errStartOver if the
// node is gone, and else why waiting ended. Errors that may pass do not cost the place in the
// queue.
func (a *attempt) queue(ctx context.Context, s *session, place driver.Place) error {
	c := contender{attempt: a, session: s, place: place}
	watches, cancel := context.WithCancel(ctx)
	defer cancel() // frees the watch of one's own node
	defer func() {
		if c.timer != nil {
			c.timer.Stop()
		}
	}()
	for {
		entered, err := c.step(watches)
		switch {
		case err == nil && entered:
			return nil
		case err == nil:
		case errors.Is(err, driver.ErrUnavailable) && ctx.Err() == nil && s.Err() == nil:
			if err := a.pause(ctx, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// step looks at the queue once and, if somebody is in the way, waits once.
func (c *contender) step(ctx context.Context) (entered bool, err error) {
	watch, cancel := context.WithCancel(ctx)
	defer cancel() // frees the watch of whoever is in the way
	changed, err := c.armQueue(watch)
	if err != nil {
		return false, err
	}
	nodes, err := c.session.List(ctx, c.m.name)
	if err != nil {
		return false, err
	}
	c.succeeded()
	i := indexOf(nodes, c.place.Node)
	if i < 0 {
		return false, errStartOver
	}
	b := blocker(nodes, i, c.mode)
	if b < 0 {
		return true, nil
	}
	if c.try {
		return false, ErrLocked
	}
	c.waiting(nodes[b].Name, i+1)
	if changed == nil {
		c.restrain(ctx)
		if changed, err = c.armBlocker(watch, nodes[b].Name); err != nil {
			return false, err
		}
	}
	return false, c.sleep(ctx, changed)
}

// armQueue watches the whole queue, if that is the way of waiting. It has to be done before the
// queue is listed.
func (c *contender) armQueue(ctx context.Context) (<-chan driver.Cause, error) {
	if c.m.options.wait.kind != watchQueue || c.try {
		return nil, nil
	}
	return c.session.Watch(ctx, c.m.name, "")
}

// armBlocker watches the node in the way, if that is the way of waiting.
func (c *contender) armBlocker(ctx context.Context, name string) (<-chan driver.Cause, error) {
	if c.m.options.wait.kind != watchPredecessor {
		return nil, nil
	}
	return c.session.Watch(ctx, c.m.name, name)
}

// sleep waits for a reason to look at the queue again, and returns nil then.
func (c *contender) sleep(ctx context.Context, changed <-chan driver.Cause) error {
	wake, stop := c.alarm()
	defer stop()
	for {
		select {
		case <-changed:
			return nil
		case <-c.own:
			c.own = nil
			c.timer.Reset(watchOwnAfter)
			return nil
		case <-wake:
			if c.m.options.wait.kind == poll {
				return nil
			}
			if err := c.armOwn(ctx); err != nil {
				return err
			}
		case <-c.session.Done():
			return c.session.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-c.m.sessions.done:
			return ErrClosed
		}
	}
}

// alarm returns what rings, besides a watch: for somebody who polls, the time to look again;
// for somebody who watches the predecessor, the time to watch the own node too. A watch of the
// whole queue needs neither.
func (c *contender) alarm() (ring <-chan time.Time, stop func() bool) {
	switch c.m.options.wait.kind {
	case poll:
		t := time.NewTimer(c.m.options.wait.pause())
		return t.C, t.Stop
	case watchPredecessor:
		if c.timer == nil {
			c.timer = time.NewTimer(watchOwnAfter)
		}
		return c.timer.C, func() bool { return true }
	}
	return nil, func() bool { return true }
}

// restrain keeps a driver whose watches close early, again and again, from being asked for the
// queue all the time. Once or twice is nothing unusual.
func (c *contender) restrain(ctx context.Context) {
	if c.m.options.wait.kind == watchPredecessor && c.idle > 2 {
		sleep(time.Millisecond<<min(c.idle-2, 7), ctx.Done())
	}
}

// armOwn watches one's own node, so that a contender whose node was removed does not wait for
// ever at a place that it does not have. Then it makes sure that the node is there: the watch
// may be that of somebody else's node of the same name.
func (c *contender) armOwn(ctx context.Context) error {
	own, err := c.session.Watch(ctx, c.m.name, c.place.Name)
	if err != nil {
		c.timer.Reset(watchOwnAfter)
		return err
	}
	c.own = own
	if name, err := c.session.find(ctx, c.m, c.place); err != nil || name != "" {
		return err
	}
	return errStartOver
}

func (c *contender) waiting(behind string, position int) {
	if c.idle++; behind != c.behind {
		c.idle = 0
	}
	c.behind, c.position = behind, position
	if hook := c.m.options.trace.Waiting; hook != nil {
		hook(WaitingInfo{Lock: c.m.name, Node: c.place.Name, Behind: behind, Position: position})
	}
}
