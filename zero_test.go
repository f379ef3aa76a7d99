package dlock_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

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

// After an ignored error of Lock, the Lock must behave as after Unlock.
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
func TestNoMethodOfAZeroLockPanics(t *testing.T) {
	values := []any{new(dlock.Lock), (*dlock.Lock)(nil)}
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
