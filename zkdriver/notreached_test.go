package zkdriver_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/recipes"
)

func unservedAddresses(t *testing.T) map[string]string {
	t.Helper()
	dead, err := testenv.FreePort()
	require.NoError(t, err)
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { mute.Close() })
	return map[string]string{"dead": testenv.Loopback(dead), "mute": mute.Addr().String()}
}

func TestErrorsWithoutASessionSayWhyAndNotThatACallWasCancelled(t *testing.T) {
	for name, address := range unservedAddresses(t) {
		for _, parameters := range []string{"", "&tls=true"} {
			open := func(parameter string, dials *int) *dlock.Client {
				c, err := dlock.Open("zk", "zk://"+address+"/?"+parameter+parameters, dlock.WithTrace(&recipes.Trace{
					Connected: func(context.Context, recipes.ConnectedInfo) { *dials++ },
				}))
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				return c
			}
			var dials, more int
			_, err := open("connect_timeout=300ms", &dials).RWMutex("q").TryLock(t.Context())
			require.ErrorIs(t, err, dlock.ErrUnavailable, name)
			require.NotErrorIs(t, err, dlock.ErrTimeout)
			assert.ErrorContains(t, err, "no session with "+address+" within 300ms")
			assert.NotContains(t, err.Error(), context.Canceled.Error())
			assert.Equal(t, 1, dials, "TryLock ends with the first attempt")

			c := open("session_timeout=10s", &more)
			_, err = c.RWMutex("q", dlock.WithTimeout(200*time.Millisecond)).Lock(t.Context())
			require.ErrorIs(t, err, dlock.ErrTimeout, name)
			require.ErrorIs(t, err, dlock.ErrUnavailable, name)
			assert.ErrorContains(t, err, "no session with "+address)
			assert.NotContains(t, err.Error(), context.Canceled.Error())

			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			err = c.Ping(ctx)
			cancel()
			require.ErrorIs(t, err, dlock.ErrUnavailable, name)
			assert.NotContains(t, err.Error(), context.Canceled.Error())
		}
	}
}
