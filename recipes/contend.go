package recipes

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watchOwnAfter is how long a contender waits before its own node is watched too, where that is not
// done from the start. Brief waits do without: whoever is let in looks at the queue first and sees its
// node there.
const watchOwnAfter = 300 * time.Millisecond

// contender is an attempt that has a node in the queue.
type contender struct {
	attempt // a copy: see queue
	session *session
	place   driver.Place
	own     <-chan driver.Cause // the watch of one's own node; nil until it is armed
	watched bool                // it has been
	timer   *time.Timer         // until it is to be armed; nil where it is not needed
	idle    int                 // wake-ups in a row that have changed nothing
	slow    <-chan time.Time    // when the log is to tell of the wait; nil if it is not
}

// queue waits until nobody is in the way of the node. It returns nil then, errStartOver if the
// node is gone, and else why waiting ended. Errors that may pass do not cost the place in the
// queue.
func (a *attempt) queue(ctx context.Context, s *session, place driver.Place) error {
	c := contender{attempt: *a, session: s, place: place}
	defer func() { *a = c.attempt }() // who need not queue has it on his stack
	watches, free := freeable(ctx)
	defer free() // the watch of one's own node
	slow, stop := a.slow(ctx)
	defer stop()
	c.slow = slow
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
		case errors.Is(err, driver.ErrUnavailable) && !c.try && ctx.Err() == nil && s.Err() == nil:
			if err := c.pause(ctx, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// freeable returns a context for watches, and what frees those that have not closed by then. Who
// cannot go away does without: it is spared what each request costs that can be given up, and its watches
// close with the nodes, which go soon in most cases, or with the session.
func freeable(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return ctx, func() {}
	}
	return context.WithCancel(ctx)
}

// step looks at the queue once and, if somebody is in the way, waits once.
func (c *contender) step(ctx context.Context) (entered bool, err error) {
	if ctx.Err() != nil {
		return false, errCallOver
	}
	watch, free := freeable(ctx)
	defer free() // the watch of whoever is in the way
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
	c.waiting(ctx, sight{nodes[0].Name, nodes[b].Name, i + 1, time.Now()})
	if changed == nil {
		c.restrain(ctx)
		if ctx.Err() != nil {
			return false, errCallOver
		}
		if changed, err = c.armBlocker(watch, nodes[b].Name); err != nil {
			return false, err
		}
		if over, err := c.expectRelease(ctx, changed); over || err != nil {
			return false, err
		}
	}
	return c.sleep(ctx, changed)
}

// expectRelease watches the own node from the start where a release ahead may be relied upon then: see
// passed. It tells whether the wait is over already.
func (c *contender) expectRelease(ctx context.Context, changed <-chan driver.Cause) (over bool, err error) {
	if c.session.releaser == nil || c.watched || c.m.options.wait.kind != watchPredecessor {
		return false, nil
	}
	if ended(changed) {
		return true, nil
	}
	c.own, err = c.session.releaser.WatchPlace(ctx, c.m.name, c.place)
	c.watched = err == nil
	return ended(changed), err
}

// ended tells whether a watch has ended by now, and takes what it says.
func ended(watch <-chan driver.Cause) bool {
	select {
	case <-watch:
		return true
	default:
		return false
	}
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

// sleep waits for a reason to look at the queue again, and returns then; entered tells that
// there is no need to look, because the lock has been passed on.
func (c *contender) sleep(ctx context.Context, changed <-chan driver.Cause) (entered bool, err error) {
	wake, stop := c.alarm()
	defer stop()
	for {
		select {
		case cause := <-changed:
			return c.passed(cause), nil
		case <-c.own:
			c.looseOwn()
			return false, nil
		case <-wake:
			if c.m.options.wait.kind == poll {
				return false, nil
			}
			if err := c.armOwn(ctx); err != nil || ended(changed) {
				return false, err
			}
		case <-c.slow:
			c.tellOfWait()
		case <-c.session.Done():
			return false, c.session.Err()
		case <-ctx.Done():
			return false, errCallOver
		case <-c.m.sessions.done:
			return false, ErrClosed
		}
	}
}

// passed tells whether the node that was in the way has passed the lock on, so that it is held
// now without another look at the queue. It is asked when the watch ends while one sleeps, not when it has ended
// while a request was under way: that is old news. It is so if
//
//   - its holder has released it: then it was the first of the queue, and held exclusively. No
//     other end of a watch says that. A holder who downgrades gives up a name but not the place,
//     one who leaves the queue may have had others before him, and a watch may just close;
//   - and the own node was there at that time. Its watch, which is of this very
//     node (WatchPlace) and not of another one of its name, has not fired; and
//     had the node gone before the release, that could be seen by now. A
//     session that is no Releaser has no such watch, so what its watches say is
//     never believed.
//
// The own node was there, so the queue is the one that was listed, and the node that was watched
// is the one that was listed: no name comes again in a queue as long as it stands.
func (c *contender) passed(cause driver.Cause) bool {
	if cause != driver.Released || c.own == nil || c.session.releaser == nil {
		return false
	}
	select {
	case <-c.own:
		c.looseOwn()
		return false
	default:
		return true
	}
}

// looseOwn is for when the watch of the own node has ended. It is armed anew after a while.
func (c *contender) looseOwn() {
	c.own = nil
	if c.timer != nil {
		c.timer.Reset(watchOwnAfter)
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
		if c.timer == nil && c.own == nil {
			c.timer = time.NewTimer(watchOwnAfter)
		}
		if c.timer != nil {
			return c.timer.C, func() bool { return true }
		}
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
// ever at a place that it does not have. Without WatchPlace it makes sure then that the node is there: the
// watch may be that of somebody else's node of the same name.
func (c *contender) armOwn(ctx context.Context) error {
	if c.session.releaser != nil {
		own, err := c.session.releaser.WatchPlace(ctx, c.m.name, c.place)
		c.own = own
		return c.armLater(err)
	}
	own, err := c.session.Watch(ctx, c.m.name, c.place.Name)
	if err != nil {
		return c.armLater(err)
	}
	c.own = own
	name, err := c.session.find(ctx, c.m, c.place)
	switch {
	case err != nil:
		return err
	case name == "":
		return errStartOver
	}
	return nil
}

// armLater has another try made after an error.
func (c *contender) armLater(err error) error {
	if err != nil {
		c.timer.Reset(watchOwnAfter)
	}
	return err
}

func (c *contender) waiting(ctx context.Context, now sight) {
	if c.idle++; now.behind != c.behind {
		c.idle = 0
	}
	c.sight = now
	c.note()
	if hook := c.m.options.trace.Waiting; hook != nil {
		hook(ctx, WaitingInfo{Lock: c.m.name, Node: c.place.Name, Behind: now.behind, Position: now.position})
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
	c.m.options.logger.Debug("dlock: still waiting", "lock", c.m.name, "node", c.place.Name,
		"behind", printable(c.behind), "holder", printable(c.holder), "position", c.position, "waited", c.waited())
}
