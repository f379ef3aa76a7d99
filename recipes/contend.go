package recipes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// contender is an attempt that has a node in the queue.
type contender struct {
	attempt // a copy: see queue
	session *session
	joined  driver.Joined    // what it says of the queue is used up by the first look
	idle    int              // wake-ups in a row that have changed nothing
	slow    <-chan time.Time // when the log says for whom the call waits; nil if it does not
}

// queue waits until no other contender blocks the node. It returns nil then,
// errStartOver if the node is gone, and else why waiting ended. Errors that may
// pass do not cost the place in the queue.
func (a *attempt) queue(ctx context.Context, s *session, joined driver.Joined) error {
	// Work on a copy: an attempt that never queues then stays on the stack.
	c := contender{attempt: *a, session: s, joined: joined}
	defer func() { *a = c.attempt }()
	slow, stop := a.slow(ctx)
	defer stop()
	c.slow = slow
	for {
		granted, err := c.step(ctx)
		switch {
		case err == nil && granted:
			return nil
		case err == nil:
		case errors.Is(err, driver.ErrUnavailable) && !c.try && ctx.Err() == nil && s.Err() == nil:
			if err := c.pause(ctx, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// step looks at the queue once and, if another contender blocks the node, waits
// once.
func (c *contender) step(ctx context.Context) (granted bool, err error) {
	if ctx.Err() != nil {
		return false, errCallOver
	}
	watch, err := c.watchQueue(ctx)
	if err != nil {
		return false, err
	}
	defer func() { watch.Stop() }()
	ahead, err := c.ahead(ctx)
	if err != nil {
		return false, err
	}
	c.succeeded()
	b := blocker(ahead, c.mode)
	if b < 0 {
		return true, nil
	}
	if c.try {
		return false, ErrLocked
	}
	c.waiting(ctx, sight{ahead[0].Name, ahead[b].Name, len(ahead) + 1, time.Now()})
	if c.m.options.wait.kind == watchPredecessor {
		if watch, err = c.watchPredecessor(ctx, ahead[b]); err != nil {
			return false, err
		}
	}
	return c.sleep(ctx, watch)
}

// watchQueue watches the whole queue, if that is the way of waiting. It has to
// be done before the queue is listed.
func (c *contender) watchQueue(ctx context.Context) (driver.Watch, error) {
	if c.m.options.wait.kind != watchQueue || c.try {
		return driver.Watch{}, nil
	}
	c.joined.Known = false // its list is older than the watch
	return c.session.WatchQueue(ctx, c.m.name)
}

// ahead returns the nodes before the contender's own: those that Create has
// returned, once, and else those that the store lists now.
func (c *contender) ahead(ctx context.Context) ([]driver.Node, error) {
	if c.joined.Known {
		nodes := c.joined.Ahead
		c.joined.Known, c.joined.Ahead = false, nil // not kept while the call waits
		return nodes, nil
	}
	nodes, err := c.session.List(ctx, c.m.name)
	if err != nil {
		return nil, err
	}
	i := indexOf(nodes, c.joined.Node)
	if i < 0 {
		c.succeeded()
		return nil, errStartOver
	}
	return nodes[:i], nil
}

// watchPredecessor watches the contender's own node and the one that blocks it.
func (c *contender) watchPredecessor(ctx context.Context, n driver.Node) (driver.Watch, error) {
	if w := c.joined.Watch; w.C != nil {
		c.joined.Watch = driver.Watch{}
		return w, nil
	}
	c.restrain(ctx)
	if ctx.Err() != nil {
		return driver.Watch{}, errCallOver
	}
	return c.session.Watch(ctx, c.m.name, c.joined.Place, n)
}

// restrain spaces out the requests of a contender whose driver ends watches
// early, again and again. Once or twice is nothing unusual.
func (c *contender) restrain(ctx context.Context) {
	if c.idle > 2 {
		sleep(time.Millisecond<<min(c.idle-2, 7), ctx.Done())
	}
}

// sleep waits for a reason to look at the queue again. It reports whether the
// contender is granted the lock without another look.
func (c *contender) sleep(ctx context.Context, watch driver.Watch) (granted bool, err error) {
	wake, stop := c.alarm()
	defer stop()
	for {
		select {
		case cause, open := <-watch.C:
			return open && cause == driver.Released && passedOn(watch), nil
		case <-wake:
			return false, nil
		case <-c.slow:
			c.tellOfWait()
		case <-c.session.Done():
			return false, c.session.Err()
		case <-ctx.Done():
			return false, errCallOver
		case <-c.m.client.done:
			return false, ErrClosed
		}
	}
}

// passedOn reports whether a watch that has sent Released grants its contender
// the lock without another look at the queue:
//
//   - The holder released the predecessor, so the predecessor was the first of
//     the queue, and was held exclusively. Nothing else makes a driver send
//     Released. A holder that downgrades gives up a name but not the place, and
//     a contender that leaves the queue may have had others before it.
//   - The contender's own node stood at that time: rule 13. The watch goes on
//     for it, so if the node has gone since and that can be seen by now, the
//     watch has ended.
//
// The own node stood, so the queue is the one that was listed, and the node
// that was released is the one that was listed: no name comes again in a queue
// as long as the queue stands.
func passedOn(watch driver.Watch) bool {
	select {
	case <-watch.C:
		return false
	default:
		return true
	}
}

// alarm returns a channel that rings when a contender that polls has to look
// again.
func (c *contender) alarm() (ring <-chan time.Time, stop func() bool) {
	if c.m.options.wait.kind != poll {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(c.m.options.wait.pause())
	return t.C, t.Stop
}

func (c *contender) waiting(ctx context.Context, now sight) {
	if c.idle++; now.behind != c.behind {
		c.idle = 0
	}
	c.sight = now
	c.note()
	if hook := c.m.options.trace.Waiting; hook != nil {
		hook(ctx, WaitingInfo{Lock: c.m.name, Node: c.joined.Name, Predecessor: now.behind, Position: now.position})
	}
}

// slowAfter is how long a call waits until the log tells for whom, once.
const slowAfter = 5 * time.Second

// slow returns a channel that rings when the call has waited for slowAfter, or
// nil where the log is not to tell of that.
func (a *attempt) slow(ctx context.Context) (ring <-chan time.Time, stop func() bool) {
	if a.told || a.try || !a.m.options.logger.Enabled(ctx, slog.LevelDebug) {
		return nil, func() bool { return true }
	}
	t := time.NewTimer(slowAfter - time.Since(a.began))
	return t.C, t.Stop
}

func (c *contender) tellOfWait() {
	c.told = true
	c.m.options.logger.Debug("dlock: still waiting", "lock", c.m.name, "node", c.joined.Name,
		"behind", printable(c.behind), "holder", printable(c.holder), "position", c.position, "waited", c.waited())
}
