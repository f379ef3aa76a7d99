package recipes_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

func TestCheckReturnsWhatTheDriverFinds(t *testing.T) {
	c := recipes.NewClient(memdriver.New())
	defer c.Close()
	found, err := c.Check(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, found)
	simple := recipes.NewClient(struct{ driver.Connector }{memdriver.New()})
	defer simple.Close()
	_, err = simple.Check(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

func TestAClientThatOnlyLooksGrantsAndRemovesNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		held := w.granted(w.client("a").RWMutex("q").Lock(bg))
		looks := w.client("b", recipes.WithReadOnly())
		queue, err := looks.RWMutex("q").Queue(bg)
		require.NoError(w, err)
		require.Equal(w, held.Node(), queue[0].Node)
		require.ErrorIs(w, looks.RWMutex("q").Remove(bg, queue[0]), errors.ErrUnsupported)
		_, err = looks.RWMutex("other").Lock(bg)
		require.ErrorIs(w, err, errors.ErrUnsupported)
		require.NoError(w, held.Err())
		w.unlock(held)
	})
}

type stuck struct {
	driver.Connector
	began chan struct{}
}

func (s stuck) Check(ctx context.Context) ([]driver.Finding, error) {
	close(s.began)
	<-ctx.Done()
	return []driver.Finding{{Text: "as far as it came"}}, ctx.Err()
}

func TestCloseEndsCheck(t *testing.T) {
	s := stuck{memdriver.New(), make(chan struct{})}
	c := recipes.NewClient(s)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Check(context.Background())
		ended <- err
	}()
	<-s.began
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-ended, recipes.ErrClosed)
	_, err := c.Check(t.Context())
	require.ErrorIs(t, err, recipes.ErrClosed)
}

func TestCheckEndsWithItsContext(t *testing.T) {
	s := stuck{memdriver.New(), make(chan struct{})}
	c := recipes.NewClient(s)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found, err := c.Check(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, found)
}
