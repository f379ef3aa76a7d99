package postgres

import (
	"context"
	"database/sql"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
)

// The session can poll without a connection for notices, so Watch must not
// wait.
func TestWatchWorksWithoutANewConnection(t *testing.T) {
	server := pgtest.Shared(t)
	c, err := Driver{}.OpenConnector(server.DSN("schema="+server.Schema(), "session_timeout=12s"))
	require.NoError(t, err)
	var hangs atomic.Bool
	dialing := make(chan struct{})
	dialed := sync.OnceFunc(func() { close(dialing) })
	config := c.(*connector).config
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if hangs.Load() {
			dialed()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return dial(ctx, network, addr)
	}
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	defer s.Close()
	j := mustCreate(t, s, "x")
	db, err := s.(*session.Session).Store().(*store).DB()
	require.NoError(t, err)
	release := takeConnections(t, db)
	hangs.Store(true)
	go func() {
		<-dialing // the listener has found no idle connection
		release()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	w, err := s.Watch(ctx, "q", j.Place)
	require.NoError(t, err)
	w.Stop()
	select {
	case <-dialing:
	default:
		t.Error("no connection was wanted")
	}
}

// takeConnections occupies at least four connections, which Watch, a heartbeat
// and the listener need later.
func takeConnections(t *testing.T, db *sql.DB) (release func()) {
	db.SetMaxIdleConns(4)
	var taken []*sql.Conn
	for len(taken) < 4 || db.Stats().Idle > 0 {
		c, err := db.Conn(t.Context())
		require.NoError(t, err)
		taken = append(taken, c)
	}
	return func() {
		for _, c := range taken {
			c.Close()
		}
	}
}
