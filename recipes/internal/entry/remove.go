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
		return e.explain(err)
	}
	if !e.session.client.Go(e.delete) {
		return e.deleteAtClose(limit)
	}
	began := time.Now()
	timer := time.AfterFunc(limit, func() { e.leave(&e.removal) })
	defer timer.Stop()
	err, answered := e.awaitAnswer(&e.removal)
	switch {
	case !answered:
		return e.unconfirmed(fmt.Errorf("no answer within %v", limit))
	case e.repeats != nil:
		return e.awaitRepeats(err, limit-time.Since(began))
	}
	return e.explain(err)
}

// delete sends the Delete. If the store does not answer, delete retries until
// it gets an answer or the session ends.
func (e *Entry) delete() {
	err := e.session.Delete(context.Background(), e.queue.Name, e.lastPlace(), e.removalCause())
	if e.mayRepeat(err) {
		e.repeats = e.newTask(e.deleteAgain, e.removed)
		e.repeats.tries++
		e.answer(&e.removal, err, true)
		e.repeats.run()
		e.session.settle(e.queue.Name)
		return
	}
	e.removed()
	if !e.answer(&e.removal, err, false) {
		e.session.settle(e.queue.Name)
		e.reportLate(err)
	}
}

// deleteAtClose sends the Delete when the client is being closed. It is not
// repeated, because the node goes with the session.
func (e *Entry) deleteAtClose(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := e.session.Delete(ctx, e.queue.Name, e.lastPlace(), e.removalCause())
	e.removed()
	if e.mayRepeat(err) {
		return e.unconfirmed(err)
	}
	return e.explain(err)
}

// reportLate reports the answer to a Delete whose caller has returned.
func (e *Entry) reportLate(err error) {
	var refused *refusal
	if err = e.explain(err); errors.As(err, &refused) {
		err = refused.err
	} else {
		err = nil
	}
	e.queue.Reaped(e.Place().Name, 1, err)
}

func (e *Entry) mayRepeat(err error) bool {
	return err != nil && e.session.Err() == nil && mayPass(err)
}

// explain returns the error of Remove for the store's answer to the Delete.
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
	e.logRefusal(name, err)
	return &refusal{name, err}
}

// awaitRepeats waits until the repeats of the Delete have ended, or the limit
// passes. The argument err is the error of the first Delete.
func (e *Entry) awaitRepeats(err error, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-e.repeats.done:
		switch {
		case e.repeats.err == nil:
			return nil
		case e.session.endedByStore():
			return e.explain(e.repeats.err)
		case e.session.Err() == nil:
			return &refusal{e.Place().Name, e.repeats.err}
		}
	case <-timer.C:
	case <-e.session.client.Closed:
		return errClosing
	}
	return e.unconfirmed(err)
}

func (e *Entry) unconfirmed(err error) error {
	return fmt.Errorf("%w: node %s is removed when the store answers: %w", driver.ErrUnavailable, e.Place().Name, err)
}

// deleteAgain repeats a Delete. It treats ErrGone as success, because an
// earlier attempt may have removed the node.
func (e *Entry) deleteAgain(ctx context.Context) error {
	err := e.session.Delete(ctx, e.queue.Name, e.Place(), driver.Changed)
	switch {
	case errors.Is(err, driver.ErrGone):
		return nil
	case err != nil && e.session.Err() == nil && !mayPass(err):
		e.logRefusal(e.Place().Name, err)
	}
	return err
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
func (e *Entry) lastPlace() driver.Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.rename.underWay != nil && e.awaitReplace(context.Background()) == nil { // beginRemoval has interrupted it
	}
	return e.place
}
