package sqltest

import (
	"context"
	"errors"
	"testing"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
)

// LeavingCallers checks that callers who give up close no connection and leave
// no node. The contexts of their calls end when a request is sent.
func LeavingCallers(t *testing.T, connect Connecting) {
	silence := new(Silence)
	s := connect(t, silence)
	own, err := s.Create(t.Context(), "queue", driver.NodeSpec{Prefix: "a-W-", Data: []byte("own")})
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(ctx context.Context) error{
		"List":  func(ctx context.Context) error { _, err := s.List(ctx, "queue"); return err },
		"Watch": func(ctx context.Context) error { w, err := s.Watch(ctx, "queue", own.Place); w.Stop(); return err },
		"Read":  func(ctx context.Context) error { _, err := driver.Inspect(s).Read(ctx, "queue", own.Name); return err },
		"Value": func(ctx context.Context) error { _, _, err := driver.Inspect(s).Value(ctx, "queue"); return err },
		"Walk":  func(ctx context.Context) error { _, err := driver.Inspect(s).Walk(ctx, ""); return err },
		"Create": func(ctx context.Context) error {
			_, err := s.Create(ctx, "queue", driver.NodeSpec{Prefix: "a-W-", Data: []byte("left")})
			return err
		},
	}
	for range 5 {
		for name, call := range calls {
			ctx, cancel := context.WithCancel(t.Context())
			silence.wrote.Store(&cancel)
			err := call(ctx)
			if err != nil && (!errors.Is(err, context.Canceled) || ctx.Err() == nil) {
				t.Errorf("%s: %v", name, err)
			}
			silence.wrote.Store(nil)
			cancel()
			for name == "Create" { // until only the session's own node is left
				nodes, err := s.List(t.Context(), "queue")
				if err != nil {
					t.Fatal(err)
				}
				if len(nodes) == 1 && nodes[0] == own.Node {
					break
				}
			}
		}
	}
	if n := silence.dials(); n > sqlstore.DefaultConnections {
		t.Errorf("%d connections were opened, want at most %d", n, sqlstore.DefaultConnections)
	}
}
