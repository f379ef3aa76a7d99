package dlock_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// uses are all ways to use a lock.
func uses(m *dlock.RWMutex) map[string]func(context.Context) error {
	lock := func(f func(context.Context) (*dlock.Lock, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := f(ctx)
			return err
		}
	}
	inside := func(context.Context) error { panic("let in") }
	return map[string]func(context.Context) error{
		"Lock": lock(m.Lock), "RLock": lock(m.RLock), "TryLock": lock(m.TryLock), "TryRLock": lock(m.TryRLock),
		"WithLock":  func(ctx context.Context) error { return m.WithLock(ctx, inside) },
		"WithRLock": func(ctx context.Context) error { return m.WithRLock(ctx, inside) },
		"Queue":     func(ctx context.Context) error { _, err := m.Queue(ctx); return err },
	}
}

func TestAClientThatWasNeverOpenedIsClosed(t *testing.T) {
	var none *dlock.Client
	for name, c := range map[string]*dlock.Client{"the zero value": {}, "nil": none} {
		assert.ErrorIs(t, c.Ping(t.Context()), dlock.ErrClosed, name)
		for use, call := range uses(c.RWMutex("stock/42")) {
			err := call(t.Context())
			assert.ErrorIs(t, err, dlock.ErrClosed, "%s of %s", use, name)
			assert.ErrorContains(t, err, "stock/42")
		}
		assert.NoError(t, c.Close(), name)
		assert.NoError(t, c.Close(), name)
	}
}

func TestAMutexOfNoClientSaysSo(t *testing.T) {
	var zero dlock.RWMutex
	for _, m := range []*dlock.RWMutex{&zero, nil} {
		for use, call := range uses(m) {
			err := call(t.Context())
			require.ErrorIs(t, err, dlock.ErrClosed, use)
			assert.ErrorContains(t, err, "use Client.RWMutex")
		}
	}
}

func TestALockFromElsewherePanics(t *testing.T) {
	for _, l := range []*dlock.Lock{new(dlock.Lock), nil} {
		assert.Panics(t, func() { _ = l.Unlock() })
		assert.Panics(t, func() { _ = l.Err() })
		assert.Panics(t, func() { l.Token() })
	}
}
