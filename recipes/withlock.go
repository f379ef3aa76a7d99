package recipes

import (
	"context"
	"errors"
)

// WithLock calls f while it holds the lock exclusively, and unlocks. If f
// panics, WithLock unlocks, and the panic goes on.
//
// The context of f is one of [Lock.Context]. It is cancelled when the lock is
// lost, with a cause that matches [ErrLost]. A call that locks with this
// context takes the same lock again, so that goroutines that share the context
// do not exclude each other.
//
// The error says how far the call has come:
//
//	nil         f has returned nil, and the lock was given back.
//	ErrNotRun   The lock was not granted and f was not called. The error matches
//	            that of Lock, too.
//	ErrLost     f has returned, but the lock was lost before that. Or f returned
//	            the ErrLost of another lock.
//	ErrUnlock   f has returned while the lock was held. The lock was given back,
//	            but its node stays for a while.
//	any other   It is the error of f. The lock was held to the end and given back.
//
// ErrLost and ErrUnlock are joined to the error of f, even if that is nil. The
// result matches what the error of f matches, except ErrNotRun and ErrUnlock: f
// may have got these two from another lock, and they would be mistaken for
// errors of this lock.
func (m *RWMutex) WithLock(ctx context.Context, f func(ctx context.Context) error) error {
	return m.with(ctx, Exclusive, f)
}

// WithRLock calls f while it holds the lock shared, and unlocks. Otherwise it
// is like WithLock.
func (m *RWMutex) WithRLock(ctx context.Context, f func(ctx context.Context) error) error {
	return m.with(ctx, Shared, f)
}

func (m *RWMutex) with(ctx context.Context, mode Mode, f func(ctx context.Context) error) error {
	err := m.usable(ctx)
	if err == nil && f == nil {
		err = lockError(m.name, errors.New("nil function"))
	}
	var l *Lock
	if err == nil {
		l, err = m.lock(ctx, mode, false)
	}
	if err != nil {
		return bothError{err, ErrNotRun}
	}
	return l.do(ctx, f)
}

// do calls f with the lock's context. It unlocks when f returns, panics or ends
// the goroutine.
func (l *Lock) do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	defer func() {
		if unlock := l.Unlock(); unlock != nil {
			err = join(err, unlock)
		}
	}()
	return mask(f(l.Context(ctx)), ErrNotRun, ErrUnlock) // f may have got these errors from another lock
}
