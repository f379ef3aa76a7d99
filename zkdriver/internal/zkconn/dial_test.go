package zkconn

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// If a network drops the request of a dial, the operating system repeats it
// only after 1 s, 3 s and 7 s. So dialAgain begins further dials.
func TestAHostThatDroppedRequestsIsReachedSoonAfterItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(3500 * time.Millisecond)
		var swallowed atomic.Int32
		conn, err := dialAgain(t.Context(), 250*time.Millisecond, func(ctx context.Context) (net.Conn, error) {
			if time.Now().Before(back) {
				swallowed.Add(1)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			here, there := net.Pipe()
			t.Cleanup(func() { there.Close() })
			return here, nil
		})
		require.NoError(t, err)
		conn.Close()
		require.LessOrEqual(t, time.Since(back), 250*time.Millisecond)
		require.EqualValues(t, 14, swallowed.Load())
	})
}

func TestDialsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := dialAgain(ctx, 100*time.Millisecond, func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
