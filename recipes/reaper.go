package recipes

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// reapTimeout bounds one try of the reaper.
const reapTimeout = 5 * time.Second

// reaper repeats what a session has to do to the store and could not confirm at once: mostly,
// to delete a node. It goes on until the store has answered or the session has ended, when the
// store drops the nodes by itself. Its goroutine runs only while there is work.
type reaper struct {
	session *session

	mu      sync.Mutex
	chores  []*chore
	running bool
}

// chore is a piece of the reaper's work.
type chore struct {
	lock, node string
	trace      *Trace
	try        func(ctx context.Context) error // nil: done
	tries      int
	done       chan struct{} // closed once the chore is done, or moot
}

// add takes a chore over and returns its done channel.
func (r *reaper) add(c *chore) <-chan struct{} {
	c.done = make(chan struct{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chores = append(r.chores, c)
	if !r.running {
		r.running = true
		r.session.sessions.spawn(r.run)
	}
	return c.done
}

func (r *reaper) run() {
	pace := retries{newBackOff: r.session.sessions.options.backOff}
	for c := r.next(); c != nil; c = r.next() {
		err := r.once(c)
		switch {
		case err == nil:
			pace.succeeded()
			c.finish(nil)
		case r.session.Err() != nil:
			c.finish(r.session.Err())
		default:
			r.session.sessions.options.logger.Warn("dlock: not confirmed by the store yet",
				"lock", c.lock, "node", c.node, "tries", c.tries, "error", err)
			r.again(c)
			sleep(pace.nextTireless(), r.session.Done())
		}
	}
}

func (r *reaper) once(c *chore) error {
	ctx, cancel := context.WithTimeout(context.Background(), reapTimeout)
	defer cancel()
	c.tries++
	return c.try(ctx)
}

// next takes the oldest chore out; with none left it ends the run.
func (r *reaper) next() *chore {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.chores) == 0 {
		r.running, r.chores = false, nil
		return nil
	}
	c := r.chores[0]
	r.chores = r.chores[1:]
	return c
}

func (r *reaper) again(c *chore) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chores = append(r.chores, c)
}

func (c *chore) finish(err error) {
	close(c.done)
	if hook := c.trace.Reaped; hook != nil {
		hook(ReapedInfo{Lock: c.lock, Node: c.node, Tries: c.tries, Err: err})
	}
}

// removal returns the chore of deleting a node.
func (m *RWMutex) removal(s *session, p driver.Place) *chore {
	return &chore{lock: m.name, node: p.Name, trace: m.options.trace, try: func(ctx context.Context) error {
		if err := s.Delete(ctx, m.name, p); err != nil && !errors.Is(err, driver.ErrGone) {
			return err
		}
		return nil
	}}
}

// abandon removes the node of somebody who does not want it any more. It waits a moment for the
// store and leaves the rest to the reaper. It has a context of its own, because that of the
// call may have ended.
func (m *RWMutex) abandon(s *session, p driver.Place) {
	if s.Err() != nil {
		return // the store removes the node with the session
	}
	ctx := newPatience(abandonTimeout)
	defer ctx.cancel()
	c := m.removal(s, p)
	if c.try(ctx) != nil {
		s.reaper.add(c)
	}
}

// abandonTimeout is how long a call that failed goes on waiting for the store.
const abandonTimeout = 50 * time.Millisecond
