package recipes

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// Observe yields the lock's holders and waiters in queue order, at once and
// after each change of the queue. Changes in quick succession may be yielded as
// one. When the client has a new session, a store with several servers may
// first show an outdated queue.
//
// Errors are yielded as by [Election.Observe]. An outage yields one error,
// after which the caller may continue the loop. Any other error ends it.
//
// Each change costs every observer two requests, however long the queue is:
// fields of a Contender for which its node must be read are empty. [RWMutex.Queue]
// reads them.
func (m *RWMutex) Observe(ctx context.Context) iter.Seq2[[]Contender, error] {
	return func(yield func([]Contender, error) bool) {
		if err := m.queue.usable(ctx); err != nil {
			yield(nil, err)
			return
		}
		o := queueObserver{observing: newObserving(m.queue)}
		for o.next(ctx, yield) {
		}
	}
}

// queueObserver is the state of one call of RWMutex.Observe.
type queueObserver struct {
	observing
	seen []driver.Node // the queue that was yielded last
}

// next yields the queue if it has changed, and waits for the next change. It
// returns false when Observe has to end.
func (o *queueObserver) next(ctx context.Context, yield func([]Contender, error) bool) (more bool) {
	var nodes []driver.Node
	var contenders []Contender
	var watch driver.Watch
	err := o.ask(ctx, func(s *session) (err error) {
		watch, nodes, err = s.WatchAndList(ctx, o.name)
		contenders = listed(nodes, s.heldSince(o.name))
		return err
	})
	defer watch.Stop()
	if err != nil {
		return o.failed(ctx, err, func(err error) bool { return yield(nil, err) })
	}
	o.down = false
	if changed := !slices.Equal(nodes, o.seen); o.answered(changed) {
		o.seen = nodes
		if !yield(contenders, nil) {
			return false
		}
	}
	o.await(ctx, watch)
	return true
}

// observing is the state of a loop that observes a queue across sessions.
type observing struct {
	*queue
	pause entry.Retries
	known bool // whether something was yielded, and no error since
	down  bool // whether the error of this outage was yielded
	idle  int  // consecutive wake-ups without a change
}

func newObserving(q *queue) observing {
	return observing{queue: q, pause: entry.Retries{New: q.options.backOff}}
}

// answered records that the store has answered, and reports whether the loop
// must yield the answer.
func (o *observing) answered(changed bool) bool {
	o.pause.Succeeded()
	o.idle++
	if o.known && !changed {
		return false
	}
	o.known, o.idle = true, 0
	return true
}

// await blocks until the watch ends or the loop has to end.
func (o *observing) await(ctx context.Context, watch driver.Watch) {
	entry.Throttle(o.idle, ctx.Done())
	select {
	case <-watch.C:
	case <-ctx.Done():
	case <-o.client.draining:
	}
}

// failed yields the first error of an outage and pauses. It returns false if the
// error is permanent.
func (o *observing) failed(ctx context.Context, err error, yield func(err error) bool) (more bool) {
	o.known = false
	if ctx.Err() != nil || !errors.Is(err, driver.ErrUnavailable) {
		yield(err)
		return false
	}
	if !o.down && !yield(err) {
		return false
	}
	o.down = true
	o.client.sleep(ctx, o.pause.NextEndless())
	return true
}
