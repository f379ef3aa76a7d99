// Package brief makes Queue send fewer requests, for a view of many queues.
package brief

import "context"

type key struct{}

// With returns a context in which Queue reads only the nodes of the first holder
// and the first waiter.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether ctx comes from With.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
