package main

import (
	"context"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/redisdriver"
	"github.com/dlock-go/dlock/internal/redistest"
)

func TestBothStepsAreExcludedAndTheWorkEndsWithRedsyncsLock(t *testing.T) {
	server := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()})
	defer server.Close()
	l, err := open(server, redisdriver.Options{EmptyIsNew: true})
	require.NoError(t, err)
	defer l.client.Close()
	require.NoError(t, l.withLock(t.Context(), "stock/42", func(ctx context.Context, _ *dlock.Lock) error {
		assert.ErrorAs(t, l.old.NewMutex("stock/42").TryLock(), new(*redsync.ErrTaken))
		_, err := l.client.RWMutex("stock/42").TryLock(t.Context())
		assert.ErrorIs(t, err, dlock.ErrLocked)
		return ctx.Err()
	}))
	l.expiry = time.Second
	err = l.withLock(t.Context(), "stock/42", func(ctx context.Context, _ *dlock.Lock) error {
		<-ctx.Done()
		return ctx.Err()
	})
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}
