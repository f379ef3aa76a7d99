package entry

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// SetValue stores the lock's value. It retries until the store answers, ctx
// ends, or the back-off gives up. If the node is gone, the entry is lost.
func (e *Entry) SetValue(ctx context.Context, value []byte) error {
	err := e.ask(ctx, func() error {
		return driver.Inspect(e.session.Session).SetValue(ctx, e.queue.Name, e.Place(), value)
	})
	if errors.Is(err, driver.ErrGone) {
		e.lose(ErrTaken)
	}
	return err
}

// Value returns the value stored by the latest SetValue of any client. Like
// SetValue, it retries.
func (e *Entry) Value(ctx context.Context) (value []byte, err error) {
	err = e.ask(ctx, func() (err error) {
		value, _, err = driver.Inspect(e.session.Session).Value(ctx, e.queue.Name)
		return err
	})
	return value, err
}

func (e *Entry) ask(ctx context.Context, request func() error) error {
	retries := Retries{New: e.queue.BackOff}
	for {
		err := request()
		if !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil || e.session.Err() != nil {
			return err
		}
		if pause := retries.Next(); pause < 0 || !Sleep(pause, ctx.Done()) {
			return err
		}
	}
}

// StoreTime converts a time of this process's clock to the store's clock: it
// adds the time since the Create to the node's creation time in the store. It
// returns the zero time if the driver did not report that. A step of the wall
// clock does no harm, because the difference comes from the monotonic clock.
func (e *Entry) StoreTime(at time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.created.IsZero() {
		return time.Time{}
	}
	return e.created.Add(at.Sub(e.asked))
}
