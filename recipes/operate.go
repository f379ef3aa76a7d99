package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Check asks the driver to look for problems that may break locks or weaken
// their guarantees, such as wrong server settings and missing rights: see
// [driver.Checker]. It works even if [Client.Ping] fails. It may begin a
// session of its own, so call it when a service starts, or in a health check
// that runs rarely.
//
// If the error is not nil, the findings may be incomplete. The error matches
// [errors.ErrUnsupported] if the driver checks nothing, and [ErrClosed] if the
// client is closed. Close cancels a running Check and waits for it.
func (c *Client) Check(ctx context.Context) ([]driver.Finding, error) {
	if ctx == nil {
		return nil, errors.New("dlock: check: nil context")
	}
	if err := c.beginCall(); err != nil {
		return nil, fmt.Errorf("dlock: check: %w", err)
	}
	defer c.endCall()
	checker, ok := c.connector.(driver.Checker)
	if !ok {
		return nil, fmt.Errorf("dlock: check: %w", errors.ErrUnsupported)
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-limited.Done():
		}
	}()
	found, err := checker.Check(limited)
	if err != nil {
		err = fmt.Errorf("dlock: check: %w", c.closedOr(err))
	}
	return found, err
}

// Remove removes the node of a contender that [RWMutex.Queue] has returned,
// even of another client. It is for operators who free a lock whose holder is
// stuck. The fields Node and Token identify the contender, so Remove never
// removes a later one.
//
// Removing a holder grants the lock to the next contender at once, although the
// former holder may continue to work. So remove a holder only if the resource
// refuses its writes by [Lock.Token], or if its process is known to be dead. A
// waiter whose node is removed queues again, at the end.
//
// If the contender has left the queue, or has another node since a downgrade,
// the error matches [ErrGone]. It matches [errors.ErrUnsupported] if the driver
// cannot remove nodes, and [io/fs.ErrPermission] if ZooKeeper does not permit
// it. If it matches driver.ErrUnavailable, or ctx has ended, the node may or
// may not have been removed: call Queue.
func (m *RWMutex) Remove(ctx context.Context, c Contender) error {
	if err := m.queue.usable(ctx); err != nil {
		return err
	}
	p := driver.Place{Node: driver.Node{Name: c.Node}, Token: c.Token}
	_, p.Seq, _ = driver.ParseName(c.Node)
	return m.queue.remove(ctx, p)
}

func (q *queue) remove(ctx context.Context, p driver.Place) error {
	if err := q.client.beginCall(); err != nil {
		return lockError(q.name, err)
	}
	defer q.client.endCall()
	err := q.client.onSession(ctx, func(s *session) error { return driver.Inspect(s.ofDriver()).Remove(ctx, q.name, p) })
	if err != nil {
		return lockError(q.name, fmt.Errorf("remove %s: %w", printable(p.Name), q.client.requestError(ctx, err)))
	}
	return nil
}

// Walk returns the names of the locks that have contenders, at and below the
// prefix, in lexical order. The prefix "stock" matches "stock" and "stock/42"
// but not "stocks". An empty prefix matches all locks. It is meant for
// diagnosis: locks that are taken or released meanwhile may be missing, and in
// a large store a Walk takes long.
//
// The error matches [errors.ErrUnsupported] if the driver cannot find queues,
// and [ErrBadName] if the prefix is neither empty nor the name of a lock.
func (c *Client) Walk(ctx context.Context, prefix string) ([]string, error) {
	if ctx == nil {
		return nil, errors.New("dlock: walk: nil context")
	}
	if err := c.beginCall(); err != nil {
		return nil, fmt.Errorf("dlock: walk: %w", err)
	}
	defer c.endCall()
	var names []string
	err := c.onSession(ctx, func(s *session) (err error) {
		names, err = driver.Inspect(s.ofDriver()).Walk(ctx, prefix)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dlock: walk: %w", c.requestError(ctx, err))
	}
	return names, nil
}
