package entry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// abandonTimeout is how long a failing call waits for the removal of its node.
const abandonTimeout = 50 * time.Millisecond

// Remove removes the entry's node. It must be called only once. It takes no
// context, because the caller's context may have ended.
//
// If the entry was lost, the error is a *[Loss], even if the loss was not
// noticed before. If the store does not confirm the removal within the limit,
// the error matches driver.ErrUnavailable, and the reaper continues in the
// background. The error also matches driver.ErrUnavailable if the session has
// ended, but then the store removes the node by itself. Any other error means
// that the store refuses to remove the node.
func (e *Entry) Remove(limit time.Duration) error {
	if loss := e.beginRemoval(); loss != nil {
		return loss
	}
	if err := e.session.Err(); err != nil { // the store removes the node with the session
		e.removed()
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(limit, cancel).Stop() // not WithTimeout, because some drivers send the deadline to the store
	place := e.lastPlace(ctx)
	err := e.session.Delete(ctx, e.queue.Name, place, e.removalCause())
	if err != nil && e.session.Err() == nil && mayPass(err) {
		return e.removeLater(ctx, place, err, limit)
	}
	e.removed()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrGone):
		return &Loss{Node: place.Name, Cause: ErrTaken}
	case e.session.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	e.logRefusal(place.Name, err)
	return &refusal{place.Name, err}
}

// Abandon removes the node of a call that failed, waiting at most 50 ms. A
// refusal by the store is reported to Queue.Reaped.
func (e *Entry) Abandon() {
	var refused *refusal
	if err := e.Remove(abandonTimeout); errors.As(err, &refused) {
		e.queue.Reaped(refused.node, 1, refused.err)
	}
}

// removalCause returns the cause to send with Delete. Released tells the next
// entry that it is granted, so it is returned only if this entry was granted
// and has always been exclusive. After a downgrade, entries behind it may
// already be granted.
func (e *Entry) removalCause() driver.Cause {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.spec.Exclusive && !e.since.IsZero() && e.rename.prefix == "" {
		return driver.Released
	}
	return driver.Changed
}

// lastPlace returns the place of the node after any Replace in flight has
// ended. Otherwise Delete might overtake it and miss the node.
func (e *Entry) lastPlace(ctx context.Context) driver.Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.rename.underWay != nil && e.awaitReplace(ctx) == nil { // beginRemoval has interrupted it
	}
	return e.place
}

// removeLater hands the removal to the reaper and waits for it until ctx ends.
// The arguments err, the error of the first Delete, and limit appear only in
// the error message.
func (e *Entry) removeLater(ctx context.Context, p driver.Place, err error, limit time.Duration) error {
	t := e.reap(&task{
		tries: 1,
		try:   func(ctx context.Context) error { return e.deleteAgain(ctx, p) },
		onEnd: e.removed,
	})
	select {
	case <-t.done:
		switch {
		case t.err == nil:
			return nil
		case e.session.Err() == nil:
			return &refusal{p.Name, t.err}
		}
	case <-ctx.Done():
	case <-e.session.client.Closed:
		return errClosing
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v", limit)
	}
	return fmt.Errorf("%w: node %s is removed when the store answers: %w", driver.ErrUnavailable, p.Name, err)
}

// deleteAgain retries a Delete. It treats ErrGone as success, because an
// earlier attempt may have removed the node.
func (e *Entry) deleteAgain(ctx context.Context, p driver.Place) error {
	err := e.session.Delete(ctx, e.queue.Name, p, driver.Changed)
	if errors.Is(err, driver.ErrGone) {
		return nil
	}
	return err
}
