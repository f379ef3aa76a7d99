package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/pgtest"
)

// TestWatchWorksWithoutANewConnection makes every attempt to connect hang. Watch must
// not wait for the connection for notices, since the session can look at the queue.
func TestWatchWorksWithoutANewConnection(t *testing.T) {
	server := pgtest.Shared(t)
	c, err := Driver{}.OpenConnector(server.DSN("schema="+server.Schema(), "session_timeout=12s"))
	if err != nil {
		t.Fatal(err)
	}
	var hangs atomic.Bool
	config := c.(*connector).config
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if hangs.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, addr)
	}
	s, err := c.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	db := s.(*session.Session).Store().(*store).pool.db()
	db.SetMaxIdleConns(1)
	hangs.Store(true)
	busy, err := db.Conn(t.Context()) // the listener finds no idle connection
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { busy.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := s.Watch(ctx, "q", j.Place)
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
}
