package entry

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// tryTimeout limits a single request of the reaper.
const tryTimeout = 5 * time.Second

// task is a request that the reaper retries, on its own goroutine, until the
// store answers or the session ends.
type task struct {
	entry *Entry
	try   func(ctx context.Context) error // sends the request once; nil means confirmed
	tries int
	onEnd func()        // called when the task has ended
	done  chan struct{} // closed after onEnd was called
	err   error         // why the task failed; set before done closes
}

func (e *Entry) newTask(try func(ctx context.Context) error, onEnd func()) *task {
	return &task{entry: e, try: try, onEnd: onEnd, done: make(chan struct{})}
}

func (t *task) run() {
	s, node := t.entry.session, t.entry.Place().Name
	pause := Retries{New: s.client.BackOff}
	for {
		err := t.once()
		switch {
		case err == nil:
			t.finish(nil)
			return
		case s.Err() != nil:
			t.finish(s.Err())
			return
		case !mayPass(err):
			t.finish(err)
			return
		}
		s.tryFailed(t.entry.queue.Name, fmt.Errorf("%w: node %s is not removed yet: %v", driver.ErrUnavailable, node, err))
		t.entry.logger().Warn("dlock: not confirmed by the store yet",
			"lock", t.entry.queue.Name, "node", node, "tries", t.tries, "error", err)
		Sleep(pause.NextEndless(), s.Done())
	}
}

func (t *task) once() error {
	ctx, cancel := context.WithTimeout(context.Background(), tryTimeout)
	defer cancel()
	t.tries++
	return t.try(ctx)
}

func (t *task) finish(err error) {
	t.err = err
	t.onEnd()
	close(t.done)
	t.entry.queue.Reaped(t.entry.Place().Name, t.tries, err)
}
