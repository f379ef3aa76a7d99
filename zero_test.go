package dlock_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// uses returns, by name, a call of each RWMutex method that needs the store.
func uses(m *dlock.RWMutex) map[string]func(context.Context) error {
	lock := func(f func(context.Context) (*dlock.Lock, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := f(ctx)
			return err
		}
	}
	locked := func(context.Context, *dlock.Lock) error { panic("called without the lock") }
	return map[string]func(context.Context) error{
		"Lock": lock(m.Lock), "RLock": lock(m.RLock), "TryLock": lock(m.TryLock), "TryRLock": lock(m.TryRLock),
		"WithLock":  func(ctx context.Context) error { return m.WithLock(ctx, locked) },
		"WithRLock": func(ctx context.Context) error { return m.WithRLock(ctx, locked) },
		"Queue":     func(ctx context.Context) error { _, err := m.Queue(ctx); return err },
		"Remove":    func(ctx context.Context) error { return m.Remove(ctx, dlock.Contender{}) },
	}
}

func TestAClientThatWasNeverOpenedIsClosed(t *testing.T) {
	var none *dlock.Client
	for name, c := range map[string]*dlock.Client{"the zero value": {}, "nil": none} {
		assert.ErrorIs(t, c.Ping(t.Context()), dlock.ErrClosed, name)
		_, err := c.Walk(t.Context(), "")
		assert.ErrorIs(t, err, dlock.ErrClosed, name)
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

// A program that ignores the error of a call continues with a nil or zero Lock.
func TestALockOfNoCallIsNotHeld(t *testing.T) {
	var none context.Context
	for name, l := range map[string]*dlock.Lock{"the zero value": new(dlock.Lock), "nil": nil} {
		assert.ErrorIs(t, l.Unlock(), dlock.ErrNotHeld, name)
		assert.ErrorIs(t, l.Unlock(), dlock.ErrNotHeld, name)
		assert.ErrorIs(t, l.Err(), dlock.ErrNotHeld, name)
		assert.ErrorIs(t, l.Downgrade(t.Context()), dlock.ErrNotHeld, name)
		assert.ErrorIs(t, l.Downgrade(none), dlock.ErrNotHeld, name)
		assert.ErrorContains(t, l.Err(), "this Lock comes from no call of RWMutex")

		assert.Zero(t, l.Token(), name)
		assert.Empty(t, l.Node(), name)
		assert.Equal(t, "no mode", l.Mode().String(), name)
		select {
		case <-l.Lost():
			t.Errorf("%s is lost, but it was never held", name)
		default:
		}
		ctx := l.Context(t.Context())
		assert.ErrorIs(t, ctx.Err(), context.Canceled, name)
		assert.ErrorIs(t, context.Cause(ctx), dlock.ErrNotHeld, name)
	}
}

// Methods are found by reflection, so that new ones are covered, too.
func TestNoMethodOfAZeroValuePanics(t *testing.T) {
	values := []any{new(dlock.Lock), (*dlock.Lock)(nil), new(dlock.RWMutex), (*dlock.RWMutex)(nil), new(dlock.Locks), (*dlock.Locks)(nil), new(dlock.Election), (*dlock.Election)(nil)}
	for _, v := range values {
		for i := range reflect.TypeOf(v).NumMethod() {
			name := reflect.TypeOf(v).Method(i).Name
			method := reflect.ValueOf(v).Method(i)
			for _, ctx := range []context.Context{t.Context(), nil} {
				assert.NotPanics(t, func() { method.Call(zeroArguments(method.Type(), ctx)) }, "%T, nil: %t, %s", v, reflect.ValueOf(v).IsNil(), name)
			}
		}
	}
}

// zeroArguments returns arguments for f: ctx for contexts, and zero values for
// other parameters.
func zeroArguments(f reflect.Type, ctx context.Context) []reflect.Value {
	contexts := reflect.TypeFor[context.Context]()
	var in []reflect.Value
	for i := range f.NumIn() {
		switch {
		case f.IsVariadic() && i == f.NumIn()-1:
		case f.In(i) == contexts && ctx != nil:
			in = append(in, reflect.ValueOf(ctx))
		default:
			in = append(in, reflect.Zero(f.In(i)))
		}
	}
	return in
}
