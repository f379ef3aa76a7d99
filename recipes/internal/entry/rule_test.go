package entry_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

type patient struct{}

func (patient) Answered([]driver.Node)                    {}
func (patient) Waits(context.Context, string, entry.View) {}
func (patient) Pause(_ context.Context, err error) error  { return err }

func all(ahead []driver.Node) []driver.Node { return ahead }

// queueOf creates a queue, and returns a function that adds an entry to it.
func queueOf(t *testing.T) func(entry.Rule) *entry.Entry {
	t.Helper()
	ds, err := memdriver.New().Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, ds.Close()) })
	s := entry.NewGrants(ds, &entry.Client{
		Go:     func(f func()) bool { go f(); return true },
		Logger: slog.New(slog.DiscardHandler),
	})
	q := &entry.Queue{Name: "q", Reaped: func(string, int, error) {}}
	return func(rule entry.Rule) *entry.Entry {
		e, err := entry.Join(t.Context(), s, q, entry.Spec{Prefix: "h-W-", Rule: rule, Exclusive: true, Waits: true})
		require.NoError(t, err)
		return e
	}
}

func hold(t *testing.T, e *entry.Entry) {
	t.Helper()
	require.NoError(t, e.Grant(func(entry.Loss) {}))
}

func TestAnEntryWaitsForEachNodeOfItsRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		join := queueOf(t)
		first, second, third := join(all), join(all), join(all)
		hold(t, first)
		granted := make(chan error, 1)
		go func() { granted <- third.Wait(context.Background(), patient{}) }()
		synctest.Wait()
		// Nothing blocks second any more, but it stays in the queue.
		require.NoError(t, first.Remove(time.Second))
		synctest.Wait()
		require.Empty(t, granted, "second is still ahead")
		require.NoError(t, second.Remove(time.Second))
		require.NoError(t, <-granted)
		require.NoError(t, third.Remove(time.Second))
	})
}

func TestAnyNodeOfARuleMayEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		twoAtOnce := func(ahead []driver.Node) []driver.Node {
			if len(ahead) < 2 {
				return nil
			}
			return ahead
		}
		join := queueOf(t)
		first, second, third := join(twoAtOnce), join(twoAtOnce), join(twoAtOnce)
		granted := make(chan error, 1)
		go func() { granted <- third.Wait(context.Background(), patient{}) }()
		synctest.Wait()
		require.Empty(t, granted)
		require.NoError(t, second.Remove(time.Second))
		require.NoError(t, <-granted)
		require.NoError(t, first.Remove(time.Second))
		require.NoError(t, third.Remove(time.Second))
	})
}
