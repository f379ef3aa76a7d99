package recipes_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// unreachable is a connector that cannot reach its store.
type unreachable struct{ dials atomic.Int64 }

func (c *unreachable) Connect(context.Context) (driver.Session, error) {
	c.dials.Add(1)
	return nil, driver.ErrUnavailable
}

type everySecond struct{}

func (everySecond) NextBackOff() time.Duration { return time.Second }
func (everySecond) Reset()                     {}

func TestADialInTheBackOffEndsWhenItsCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c unreachable
		s := recipes.NewClient(&c, recipes.WithBackOff(func() recipes.BackOff { return everySecond{} }))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		// The client dials, and cannot reach the store. The back-off asks for a
		// pause of a second before the next dial.
		require.Error(t, s.Ping(ctx))
		// This Ping waits during that pause, and gives up before the pause is
		// over.
		require.Error(t, s.Ping(ctx))
		time.Sleep(time.Minute)
		assert.EqualValues(t, 1, c.dials.Load(), "the client dials although no call waits for a second dial")
		require.NoError(t, s.Close())
	})
}
