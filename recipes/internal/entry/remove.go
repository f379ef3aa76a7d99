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
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	repeats, err := e.remove(ctx)
	if repeats == nil {
		return err
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer within %v", limit)
	}
	if !e.session.client.Go(repeats.run) {
		repeats.onEnd() // the node goes with the session
		return e.unconfirmed(err)
	}
	select {
	case <-repeats.done:
		return e.explain(repeats.err)
	case <-ctx.Done():
		return e.unconfirmed(err)
	}
}

// remove sends the Delete. Without an answer, it also returns a task that
// repeats the Delete. Until the task ends, the session's next calls for the
// queue wait.
func (e *Entry) remove(ctx context.Context) (repeats *task, err error) {
	if loss := e.beginRemoval(); loss != nil {
		return nil, loss
	}
	if err = e.session.Err(); err == nil { // else the store removes the node with the session
		err = e.delete(ctx, e.lastPlace(ctx), e.removalCause())
	}
	if err == nil || e.session.Err() != nil || !mayPass(err) {
		e.removed()
		return nil, e.explain(err)
	}
	e.session.leave(e.queue.Name)
	repeats = e.newTask(e.deleteAgain, func() {
		e.removed()
		e.session.settle(e.queue.Name)
	})
	repeats.tries++
	return repeats, err
}

// explain turns a Delete's error into the error that Remove returns.
func (e *Entry) explain(err error) error {
	name := e.Place().Name
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrGone):
		return &Loss{Node: name, Cause: ErrTaken}
	case e.session.endedByStore():
		return &Loss{Node: name, Cause: e.session.Cause()}
	case e.session.Err() != nil:
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return &refusal{name, err}
}

func (e *Entry) unconfirmed(err error) error {
	return fmt.Errorf("%w: node %s is removed when the store answers: %w", driver.ErrUnavailable, e.Place().Name, err)
}

func (e *Entry) delete(ctx context.Context, p driver.Place, why driver.Cause) error {
	err := e.session.Delete(ctx, e.queue.Name, p, why)
	if err != nil && e.session.Err() == nil && !mayPass(err) && !errors.Is(err, driver.ErrGone) {
		e.logger().Error("dlock: node cannot be removed and stays until the session ends",
			"lock", e.queue.Name, "node", p.Name, "error", err)
	}
	return err
}

// deleteAgain repeats a Delete. It treats ErrGone as success, because an
// earlier attempt may have removed the node.
func (e *Entry) deleteAgain(ctx context.Context) error {
	err := e.delete(ctx, e.Place(), driver.Changed)
	if errors.Is(err, driver.ErrGone) {
		return nil
	}
	return err
}

// Abandon removes the node of a call that failed. It waits at most 50 ms, but
// does not interrupt the Delete, which therefore has its own goroutine. If the
// client is being closed, the node goes with the session.
func (e *Entry) Abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), abandonTimeout)
	defer cancel()
	_ = e.detach(ctx, func() error {
		var refused *refusal
		repeats, err := e.remove(context.Background())
		switch {
		case repeats != nil:
			repeats.run()
		case errors.As(err, &refused):
			e.queue.Reaped(refused.node, 1, refused.err)
		case ctx.Err() != nil: // the caller has left
			e.queue.Reaped(e.Place().Name, 1, nil)
		}
		return nil
	}, func(error) {})
}

// removalCause returns Released only for an entry that was granted and has
// always been exclusive. On Released, the next waiter takes the lock at once,
// which would be wrong after a downgrade, as readers may still hold the lock.
func (e *Entry) removalCause() driver.Cause {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.spec.Exclusive && !e.since.IsZero() && e.rename.prefix == "" {
		return driver.Released
	}
	return driver.Changed
}

// lastPlace returns the place of the node after any Replace in flight has
// ended. Otherwise Delete might overtake the Replace and miss the node.
func (e *Entry) lastPlace(ctx context.Context) driver.Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.rename.underWay != nil && e.awaitReplace(ctx) == nil { // beginRemoval has interrupted it
	}
	return e.place
}
