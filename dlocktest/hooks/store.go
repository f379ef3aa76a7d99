package hooks

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Requests has the methods of all optional interfaces. The session uses them
// only if the wrapped store has them, too.
var _ interface {
	session.Notifier
	session.Admitter
	session.Expirer
	session.Reader
	session.Tidier
} = (*Requests)(nil)

// Begin implements session.Store.
func (r *Requests) Begin(ctx context.Context, timeout time.Duration) (session.Begun, error) {
	return ask(ctx, r, "Begin", func(ctx context.Context, st session.Store) (session.Begun, error) { return st.Begin(ctx, timeout) })
}

// Beat implements session.Store.
func (r *Requests) Beat(ctx context.Context) (time.Duration, error) {
	return ask(ctx, r, "Beat", func(ctx context.Context, st session.Store) (time.Duration, error) { return st.Beat(ctx) })
}

// End implements session.Store.
func (r *Requests) End(ctx context.Context) error {
	return r.request(ctx, "End", func(ctx context.Context, st session.Store) error { return st.End(ctx) })
}

var kinds = map[session.Kind]string{session.Create: "Create", session.Delete: "Delete", session.Replace: "Replace", session.Remove: "Remove", session.SetValue: "SetValue"}

// Do implements session.Store.
func (r *Requests) Do(ctx context.Context, c session.Change) (session.Result, error) {
	return ask(ctx, r, kinds[c.Kind], func(ctx context.Context, st session.Store) (session.Result, error) { return st.Do(ctx, c) })
}

// Cancel implements session.Store.
func (r *Requests) Cancel(ctx context.Context, creates []session.Change) error {
	return r.request(ctx, "Cancel", func(ctx context.Context, st session.Store) error { return st.Cancel(ctx, creates) })
}

// Look implements session.Store.
func (r *Requests) Look(ctx context.Context, queries []session.Query) ([]session.Snapshot, error) {
	method := "Look"
	if len(queries) == 1 && queries[0].Names == nil && queries[0].Known == 0 {
		method = "List"
	}
	return ask(ctx, r, method, func(ctx context.Context, st session.Store) ([]session.Snapshot, error) { return st.Look(ctx, queries) })
}

// Start implements session.Starter.
func (r *Requests) Start(h session.Host) { r.store.(session.Starter).Start(h) }

// Subscribe implements session.Notifier.
func (r *Requests) Subscribe(ctx context.Context, q session.Query) (session.Snapshot, error) {
	return ask(ctx, r, "Look", func(ctx context.Context, st session.Store) (session.Snapshot, error) {
		return st.(session.Notifier).Subscribe(ctx, q)
	})
}

// Listening implements session.Notifier.
func (r *Requests) Listening(queue string, whole bool) bool {
	return r.store.(session.Notifier).Listening(queue, whole)
}

// Admit implements session.Admitter.
func (r *Requests) Admit(ctx context.Context) error { return r.store.(session.Admitter).Admit(ctx) }

// Expire implements session.Expirer.
func (r *Requests) Expire(ctx context.Context) (bool, error) {
	return ask(ctx, r, "Expire", func(ctx context.Context, st session.Store) (bool, error) { return st.(session.Expirer).Expire(ctx) })
}

// Tidy implements session.Tidier.
func (r *Requests) Tidy(ctx context.Context) (bool, error) {
	return ask(ctx, r, "Tidy", func(ctx context.Context, st session.Store) (bool, error) { return st.(session.Tidier).Tidy(ctx) })
}

// Read implements session.Reader.
func (r *Requests) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	return ask(ctx, r, "Read", func(ctx context.Context, st session.Store) (driver.NodeInfo, error) {
		return st.(session.Reader).Read(ctx, queue, name)
	})
}

// Walk implements session.Inspector.
func (r *Requests) Walk(ctx context.Context, prefix string) ([]string, error) {
	return ask(ctx, r, "Walk", func(ctx context.Context, st session.Store) ([]string, error) {
		return st.(session.Inspector).Walk(ctx, prefix)
	})
}

// Value implements session.Reader.
func (r *Requests) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	value, err = ask(ctx, r, "Value", func(ctx context.Context, st session.Store) (v []byte, err error) {
		v, token, err = st.(session.Reader).Value(ctx, queue)
		return v, err
	})
	return value, token, err
}
