package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// AllConnectionsInUse limits db to three connections, takes them all, and
// requires that errors say so. The connector must have a long session timeout.
func AllConnectionsInUse(t *testing.T, db *sql.DB, c driver.Connector) {
	t.Helper()
	db.SetMaxOpenConns(3)
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	var taken []*sql.Conn
	for range 3 {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		taken = append(taken, conn)
	}
	for what, request := range map[string]func(context.Context) error{
		"list": func(ctx context.Context) error { _, err := s.List(ctx, "q"); return err },
		"create": func(ctx context.Context) error {
			_, err := s.Create(ctx, "q", driver.NodeSpec{Prefix: "h-W-"})
			return err
		},
		"connect": func(ctx context.Context) error { _, err := c.Connect(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := request(ctx)
		cancel()
		if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.HasSuffix(err.Error(), "store unavailable: all 3 connections of the *sql.DB are in use: "+
				"end transactions and close rows sooner, or allow more with SetMaxOpenConns") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, conn := range taken {
		assert.NoError(t, conn.Close())
	}
	assert.NoError(t, s.Close())
}

// ClosedDatabase closes db and requires that the connector then returns a
// permanent error.
func ClosedDatabase(t *testing.T, db *sql.DB, c driver.Connector) {
	t.Helper()
	db.SetMaxOpenConns(0)
	require.NoError(t, db.Close())
	_, err := c.Connect(t.Context())
	assert.ErrorContains(t, err, "closed the *sql.DB")
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
}
