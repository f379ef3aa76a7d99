package recipes_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

func findings(t *testing.T, c *recipes.Client) (found []driver.Finding) {
	t.Helper()
	require.NoError(t, c.Diagnose(t.Context(), func(f driver.Finding) { found = append(found, f) }))
	return found
}

func TestDiagnoseReportsEveryCheck(t *testing.T) {
	c := recipes.NewClient(memdriver.New())
	defer c.Close()
	var checks []driver.Check
	for _, f := range findings(t, c) {
		assert.Equal(t, driver.OK, f.Level, "%v", f)
		checks = append(checks, f.Check)
	}
	assert.Equal(t, driver.Checks(), checks)
}

// simple is a connector without optional methods.
type simple struct{ driver.Connector }

func TestDiagnoseOfADriverWithoutItTakesALock(t *testing.T) {
	c := recipes.NewClient(simple{memdriver.New()})
	defer c.Close()
	found := make(map[driver.Check]driver.Level)
	for _, f := range findings(t, c) {
		found[f.Check] = f.Level
	}
	assert.Equal(t, driver.OK, found[driver.CheckRights])
	assert.Equal(t, driver.Unknown, found[driver.CheckSettings])
}

// stuck is a connector whose Diagnose returns only when its context ends.
type stuck struct {
	driver.Connector
	began chan struct{}
}

func (s stuck) Diagnose(ctx context.Context, _ func(driver.Finding)) error {
	close(s.began)
	<-ctx.Done()
	return ctx.Err()
}

func TestCloseEndsDiagnose(t *testing.T) {
	s := stuck{memdriver.New(), make(chan struct{})}
	c := recipes.NewClient(s)
	ended := make(chan error, 1)
	go func() { ended <- c.Diagnose(context.Background(), nil) }()
	<-s.began
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-ended, recipes.ErrClosed)
	require.ErrorIs(t, c.Diagnose(t.Context(), nil), recipes.ErrClosed)
	require.ErrorIs(t, new(recipes.Client).Diagnose(t.Context(), nil), recipes.ErrClosed)
}

func TestDiagnoseEndsWithItsContext(t *testing.T) {
	s := stuck{memdriver.New(), make(chan struct{})}
	c := recipes.NewClient(s)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Diagnose(ctx, nil), context.Canceled)
}
