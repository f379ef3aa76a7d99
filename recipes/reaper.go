package recipes

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// reapTimeout bounds one try of the reaper.
const reapTimeout = 5 * time.Second

// chore is a piece of background work: something that a session has to do to
// the store and could not confirm at once. Mostly, that is to delete a node.
//
// The reaper tries a chore until the store has answered, or until the session
// has ended, when the store drops the nodes by itself. Each chore has a
// goroutine and a pace of its own, so that one that fails holds up no other.
// Only errors that may pass are worth another try.
type chore struct {
	lock, node string
	trace      *Trace
	try        func(ctx context.Context) error // nil: done
	tries      int
	done       chan struct{} // closed once the chore is done, or given up
	err        error         // why it was given up; set before done closes
}

// reap leaves a chore to the reaper. The caller may wait for its done channel.
func (s *session) reap(c *chore) {
	c.done = make(chan struct{})
	s.client.spawn(func() { s.work(c) })
}

func (s *session) work(c *chore) {
	pace := retries{newBackOff: s.client.options.backOff}
	for {
		err := c.once()
		switch {
		case err == nil:
			c.finish(nil)
			return
		case s.Err() != nil:
			c.finish(s.Err())
			return
		case !passing(err):
			s.refused(c.lock, c.node, err)
			c.finish(err)
			return
		}
		s.client.options.logger.Warn("dlock: not confirmed by the store yet",
			"lock", c.lock, "node", c.node, "tries", c.tries, "error", err)
		sleep(pace.nextTireless(), s.Done())
	}
}

func (c *chore) once() error {
	ctx, cancel := context.WithTimeout(context.Background(), reapTimeout)
	defer cancel()
	c.tries++
	return c.try(ctx)
}

func (c *chore) finish(err error) {
	c.err = err
	close(c.done)
	c.report()
}

func (c *chore) report() {
	if hook := c.trace.Reaped; hook != nil {
		hook(context.Background(), ReapedInfo{Lock: c.lock, Node: c.node, Tries: c.tries, Err: c.err})
	}
}

// passing reports whether another try may help: the store could not be reached,
// or has not answered in time.
func passing(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// refused logs that the store will not remove a node, which then stays as long
// as the session.
func (s *session) refused(lock, node string, err error) {
	s.client.options.logger.Error("dlock: node cannot be removed and stays until the session ends",
		"lock", lock, "node", node, "error", err)
}

// removal returns the chore of deleting a node.
func (m *RWMutex) removal(s *session, p driver.Place) *chore {
	return &chore{lock: m.name, node: p.Name, trace: m.options.trace, try: func(ctx context.Context) error {
		if err := s.Delete(ctx, m.name, p, driver.Changed); err != nil && !errors.Is(err, driver.ErrGone) {
			return err
		}
		return nil
	}}
}

// abandon removes the node of a call that ends without the lock. It waits a
// moment for the store and leaves the rest to the reaper. It has a context of
// its own, because that of the call may have ended.
func (m *RWMutex) abandon(s *session, p driver.Place) {
	if s.Err() != nil {
		return // the store removes the node with the session
	}
	ctx := newPatience(abandonTimeout)
	defer ctx.cancel()
	c := m.removal(s, p)
	c.tries++
	switch err := c.try(ctx); {
	case err == nil:
	case s.Err() != nil || passing(err):
		s.reap(c)
	default:
		s.refused(m.name, p.Name, err)
		c.err = err
		c.report()
	}
}

// abandonTimeout is how long a call that failed goes on waiting for the store.
const abandonTimeout = 50 * time.Millisecond
