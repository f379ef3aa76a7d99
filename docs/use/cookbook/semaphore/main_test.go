package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
)

func Example() {
	main()
	// Output:
	// 10 calls, never more than 3 at a time: true
}

func TestALossEndsTheCall(t *testing.T) {
	store := memdriver.New()
	client := dlock.NewClient(store)
	defer client.Close()
	err := call(t.Context(), client, 2, func(ctx context.Context, _ int) error {
		queue, err := client.Semaphore("partner/calls", allowed).Queue(t.Context())
		require.NoError(t, err)
		require.Len(t, queue, 1)
		assert.Equal(t, 2, queue[0].Units)
		store.Faults().RemoveNode("partner/calls", queue[0].Node)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, dlock.ErrLost)
}
