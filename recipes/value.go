package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

var errSharedSets = errors.New("only a lock that is held exclusively can set a value")

// SetValue stores a value of at most 64 KB under the lock's name, replacing any
// earlier one, and returns once the store has confirmed it. The value outlives
// the lock, the session and this process; [RWMutex.Value] returns it to every
// client. The store writes the value only if the lock is still held, so an
// earlier holder never overwrites the value of a later one.
//
// While the store is unavailable, SetValue retries as [WithBackOff] says. An
// attempt without an answer may still reach the store later, as long as the
// lock is held, and overwrite a newer value of this Lock. So after an error the
// value may be stored, now or later, unless the list says that nothing was:
//
//   - [ErrLost] or [ErrNotHeld]: the lock was lost or unlocked, perhaps during
//     the call.
//   - [errors.ErrUnsupported]: the driver stores no values. Nothing was stored.
//   - driver.ErrUnavailable, ErrTimeout or the error of ctx: the store did not
//     answer.
//   - [ErrClosed]: the client was closed.
//   - any other: the value is too long, the lock is held shared, or the store
//     has refused it. Nothing was stored.
func (l *Lock) SetValue(ctx context.Context, value []byte) error {
	switch {
	case l.fromNoCall():
		return errNoLock
	case ctx == nil:
		return lockError(l.hold.queue.name, errors.New("nil context"))
	}
	err := l.setValue(ctx, value)
	if err == nil {
		return nil
	}
	if over := l.Err(); over != nil {
		return over
	}
	return lockError(l.hold.queue.name, fmt.Errorf("set value: %w", err))
}

func (l *Lock) setValue(ctx context.Context, value []byte) error {
	c := l.hold.queue.client
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.endCall()
	if err := driver.CheckValue(value); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	if l.Mode() != Exclusive {
		return errSharedSets
	}
	if err := l.hold.entry.SetValue(l.Context(ctx), value); err != nil {
		return c.requestError(ctx, err)
	}
	return nil
}

// Value returns the value that was stored by the latest [Lock.SetValue], and the
// token of that Lock. If there is none, the value is nil and the token zero.
// Value makes one request and does not wait for the lock, whose holder may store
// another value meanwhile.
//
// The error matches [errors.ErrUnsupported] if the driver stores no values.
func (m *RWMutex) Value(ctx context.Context) (value []byte, token int64, err error) {
	if err := m.queue.usable(ctx); err != nil {
		return nil, 0, err
	}
	q := m.queue
	if err := q.client.beginRequest(); err != nil {
		return nil, 0, lockError(q.name, err)
	}
	defer q.client.endCall()
	err = q.client.onSession(ctx, func(s *session) (err error) {
		value, token, err = driver.Inspect(s.ofDriver()).Value(ctx, q.name)
		return err
	})
	if err != nil {
		return nil, 0, lockError(q.name, fmt.Errorf("value: %w", q.client.requestError(ctx, err)))
	}
	return value, token, nil
}
