// Package reason lets Connect say why it does not return yet, so that a client
// can tell its user before the wait ends.
package reason

import "context"

type key struct{}

// With returns a context for Connect. Tell, called with this context, calls f.
func With(ctx context.Context, f func(error)) context.Context {
	return context.WithValue(ctx, key{}, f)
}

// Tell passes the reason why Connect waits to the function given to With.
func Tell(ctx context.Context, err error) {
	if f, ok := ctx.Value(key{}).(func(error)); ok {
		f(err)
	}
}
